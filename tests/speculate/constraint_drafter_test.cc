#include "speculate/constraint_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "constrain/choice_language.h"
#include "constrain/gbnf_language.h"
#include "constrain/item_catalogue.h"
#include "constrain/item_constraint.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_constraint.h"
#include "constrain/regex_language.h"
#include "constrain/text_constraint.h"
#include "request/token_bytes.h"
#include "speculate/ngram_drafter.h"
#include "tests/few_cases.h"
#include "tests/speculate/drafter_properties.h"
#include "tests/text/test_tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::DraftOf;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::SharedEnFrTokenizer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kEos = 2;
constexpr std::string_view kPersons =
    R"({"type": "object", "required": ["first_name", "address"],
        "additionalProperties": false,
        "properties": {"first_name": {"type": "string"},
                       "address": {"enum": ["rue de la Paix", "rue de Rome",
                                            "\u00e9t\u00e9 \u4e2d"]}}})";

std::shared_ptr<const Constraint> Constrain(GrammarLanguage language) {
  static const auto vocabulary =
      std::make_shared<const TokenVocabulary>(TokenBytesOf(EnFrTokenizer()));
  if (auto* const calls = std::get_if<PushdownAutomaton>(&language)) {
    return PushdownConstraint::Make(
               std::make_shared<const PushdownAutomaton>(std::move(*calls)),
               vocabulary, {.end_ids = {kEos}})
        .value();
  }
  return TextConstraint::Make(
             TokenConstraint::Make(
                 std::make_shared<const ByteAutomaton>(
                     std::get<ByteAutomaton>(std::move(language))),
                 vocabulary)
                 .value(),
             {kEos})
      .value();
}

ByteAutomaton Choice(const std::vector<std::string>& texts) {
  return CompileChoice(texts).value();
}

std::unique_ptr<Drafter> DrafterOf(std::shared_ptr<const Constraint> constraint,
                                   int max_new_tokens = 200) {
  return std::make_unique<ConstraintDrafter>(
      std::move(constraint), SharedEnFrTokenizer(), max_new_tokens, nullptr);
}

std::string TextOf(std::span<const TokenId> tokens) {
  return EnFrTokenizer().Decode(tokens).value();
}

// Appends the tokens with which the tokenizer writes `text`.
void Write(std::string_view text, Drafter* drafter) {
  drafter->Append(EnFrTokenizer().EncodeOutput(text).value());
}

std::shared_ptr<const Constraint> Persons() {
  return Constrain(CompileJsonSchema(kPersons, {.has_spaces = false}).value());
}

TEST(ConstraintDrafterTest, KeysAreDraftedAsTheTokenizerWritesThem) {
  const auto constraint = Persons();
  const std::unique_ptr<Drafter> drafter = DrafterOf(constraint);
  const std::vector<TokenId> first = DraftOf(*drafter, 32);
  const std::vector<TokenId> whole =
      EnFrTokenizer()
          .EncodeOutput(R"({"first_name":"Ada","address":"rue de)")
          .value();
  ASSERT_LT(first.size(), whole.size());
  EXPECT_TRUE(std::ranges::equal(first, std::span(whole).first(first.size())));
  EXPECT_EQ(TextOf(first), R"({"first_name":")");
  Write(R"({"first_name":"Ada")", drafter.get());
  EXPECT_EQ(TextOf(DraftOf(*drafter, 32)), R"(,"address":")");
  EXPECT_EQ(DraftOf(*drafter, 3).size(), 3);
  EXPECT_THAT(DraftOf(*drafter, 0), IsEmpty());
}

TEST(ConstraintDrafterTest, ATokenThatALongerOneMayReplaceIsNotDrafted) {
  // `chat` and `chats` are tokens, or `s` continues: the draft ends before.
  const auto constraint =
      Constrain(Choice({"le chat", "le chats", "le chaton"}));
  const std::unique_ptr<Drafter> drafter = DrafterOf(constraint);
  const std::vector<TokenId> draft = DraftOf(*drafter, 32);
  Constraint::State state = constraint->start();
  std::string text;
  for (const TokenId token : draft) {
    text += constraint->BytesOf(state, token);
    state = constraint->Advance(state, token);
  }
  EXPECT_LT(text.size(), std::string_view("le chat").size());
  bool is_open = false;
  for (const TokenId token : constraint->LegalTokens(state, 100).tokens) {
    if ((text + std::string(constraint->BytesOf(state, token))).size() >
        std::string_view("le chat").size()) {
      is_open = true;
    }
  }
  EXPECT_TRUE(is_open);
}

TEST(ConstraintDrafterTest, ATextIsDraftedToItsEnd) {
  const auto constraint = Constrain(Choice({"Il pleut \u00e0 verse."}));
  const std::unique_ptr<Drafter> drafter = DrafterOf(constraint);
  EXPECT_EQ(TextOf(DraftOf(*drafter, 32)), "Il pleut \u00e0 verse.");
}

TEST(ConstraintDrafterTest, NothingIsForcedWhereTheTextMayEnd) {
  const std::unique_ptr<Drafter> drafter =
      DrafterOf(Constrain(CompileRegex("oui( monsieur)?").value()));
  Write("oui", drafter.get());
  EXPECT_THAT(DraftOf(*drafter, 8), IsEmpty());
}

TEST(ConstraintDrafterTest, SequencesOfTokensAreForcedWhereTheyAreAlone) {
  TokenLists sequences;
  for (const std::vector<TokenId>& sequence : std::vector<std::vector<TokenId>>{
           {5, 6, 7, 8}, {5, 6, 7, 9, 10, 11}, {5, 6}}) {
    sequences.tokens.insert(sequences.tokens.end(), sequence.begin(),
                            sequence.end());
    sequences.EndList();
  }
  const auto items = std::make_shared<const ItemConstraint>(
      std::make_shared<const ItemCatalogue>(sequences));
  ConstraintDrafter drafter(items, nullptr, 6, nullptr);
  EXPECT_THAT(DraftOf(drafter, 8), ElementsAre(5, 6, 7));
  drafter.Append(std::vector<TokenId>{5, 6, 7, 9});
  EXPECT_THAT(DraftOf(drafter, 8), ElementsAre(10, 11));
  EXPECT_THAT(DraftOf(drafter, 1), ElementsAre(10));
}

TEST(ConstraintDrafterTest, NearTheEndOfTheRoomMoreIsForced) {
  const std::vector<std::string> letters = {"", "a", "b", "."};
  const std::shared_ptr<const Constraint> constraint =
      TextConstraint::Make(TokenConstraint::Make(
                               std::make_shared<const ByteAutomaton>(
                                   CompileRegex("(ab|ba){1,9}\\.").value()),
                               std::make_shared<const TokenVocabulary>(letters))
                               .value(),
                           {0})
          .value();
  for (const int room : {5, 6, 7}) {
    ConstraintDrafter drafter(constraint, SharedEnFrTokenizer(), room, nullptr);
    EXPECT_THAT(DraftOf(drafter, 8), IsEmpty());
    drafter.Append(std::vector<TokenId>{1});
    EXPECT_THAT(DraftOf(drafter, 8), ElementsAre(2));
    drafter.Append(std::vector<TokenId>{2, 2});
    const std::vector<TokenId> last = {1, 3};  // a.
    const std::vector<TokenId> draft = DraftOf(drafter, 8);
    EXPECT_EQ(draft, room < 7 ? last : std::vector<TokenId>{1});
  }
}

TEST(ConstraintDrafterTest, ForksHaveTheirOwnTexts) {
  const std::unique_ptr<Drafter> drafter = DrafterOf(Persons());
  const std::unique_ptr<Drafter> fork = drafter->Fork();
  Write(R"({"first_name":"Ada")", fork.get());
  EXPECT_EQ(TextOf(DraftOf(*fork, 32)), R"(,"address":")");
  EXPECT_EQ(TextOf(DraftOf(*fork->Fork(), 32)), R"(,"address":")");
  EXPECT_EQ(TextOf(DraftOf(*drafter, 32)), R"({"first_name":")");
}

TEST(ConstraintDrafterTest, AnotherDrafterDraftsWhereNothingIsForced) {
  const auto constraint = Persons();
  const std::vector<TokenId> prompt =
      EnFrTokenizer()
          .EncodeOutput(R"({"first_name":"Ada","address":"rue )")
          .value();
  auto history = std::make_unique<NgramDrafter>();
  history->Append(prompt);
  ConstraintDrafter drafter(constraint, SharedEnFrTokenizer(), 200,
                            std::move(history));
  EXPECT_EQ(TextOf(DraftOf(drafter, 32)), R"({"first_name":")");
  const std::vector<TokenId> key = DraftOf(drafter, 32);
  drafter.Append(key);
  const std::vector<TokenId> others = DraftOf(drafter, 4);
  EXPECT_TRUE(
      std::ranges::equal(others, std::span(prompt).subspan(key.size(), 4)));
  // Forced tokens that history continues.
  drafter.Append(others);
  drafter.Append(std::span(prompt).subspan(key.size() + 4, 1));
  const auto fork = drafter.Fork();
  EXPECT_EQ(DraftOf(*fork, 6), DraftOf(drafter, 6));
}

// Bytes that all legal tokens agree on; empty if they do not.
std::string ForcedTwin(const Constraint& constraint, Constraint::State state,
                       int room) {
  std::string forced;
  bool is_first = true;
  for (const TokenId token : constraint.LegalTokens(state, room).tokens) {
    const std::string bytes(constraint.BytesOf(state, token));
    if (is_first) forced = bytes;
    is_first = false;
    const size_t size = std::min(forced.size(), bytes.size());
    const bool agree = forced.substr(0, size) == bytes.substr(0, size);
    if (!agree) return "";
    if (bytes.size() > forced.size()) forced = bytes;
  }
  return forced;
}

// Along random texts: what is drafted may follow, and where several tokens may,
// all of them spell beginnings of one text.
TEST(ConstraintDrafterTest, DraftsAreForced) {
  const std::vector<std::shared_ptr<const Constraint>> constraints = {
      Persons(),
      Constrain(CompileJsonSchema(kPersons, {.has_spaces = true}).value()),
      Constrain(Choice({"Il pleut.", "Il neige.", "Elle pleure.",
                        "\u00e9t\u00e9", "\u00e9t\u00e0"})),
      Constrain(
          CompileRegex("(le chat noir |la souris grise ){1,5}dort").value()),
      Constrain(CompileGbnf("root ::= \"begin(\" root \")end\" | \"pardon\"")
                    .value()),
      Constrain(CompileGbnf("root ::= \"[\" (root (\", \" root)*)? \"]\" | "
                            "\"nombre \" [0-9]+ \" fin\"")
                    .value())};
  std::mt19937 random(5);
  int num_drafted = 0;
  for (const std::shared_ptr<const Constraint>& constraint : constraints) {
    for (int i = 0; i < Cases(40, 6); ++i) {
      int room = 12 + static_cast<int>(random() % 40);
      Constraint::State state = constraint->start();
      const std::unique_ptr<Drafter> drafter = DrafterOf(constraint, room);
      while (true) {
        const int max_tokens = 1 + static_cast<int>(random() % 12);
        const std::vector<TokenId> draft = DraftOf(*drafter, max_tokens);
        ASSERT_LE(std::ssize(draft), max_tokens);
        Constraint::State at = state;
        int room_at = room;
        for (const TokenId token : draft) {
          const auto legal = constraint->LegalTokens(at, room_at).tokens;
          ASSERT_TRUE(std::ranges::binary_search(legal, token));
          if (legal.size() > 1) {
            EXPECT_FALSE(ForcedTwin(*constraint, at, room_at).empty());
          }
          at = constraint->Advance(at, token);
          --room_at;
          ++num_drafted;
        }
        const auto legal = constraint->LegalTokens(state, room).tokens;
        if (legal.empty()) break;
        // Drafts are taken, or all else.
        TokenId next = legal[random() % legal.size()];
        if (!draft.empty() && random() % 2 == 0) next = draft[0];
        drafter->Append({&next, 1});
        state = constraint->Advance(state, next);
        --room;
        if (next == kEos || constraint->ends(state, room)) break;
      }
    }
  }
  EXPECT_GT(num_drafted, Cases(40, 6) * 20);
}

}  // namespace
}  // namespace espalier
