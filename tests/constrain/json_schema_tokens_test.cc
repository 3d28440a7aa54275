// Instances of the JSON-Schema-Test-Suite as tokens: however a text is split
// into tokens of a vocabulary, the constraint has it if and only if it is one
// of the language, and a valid instance is.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "constrain/json_schema.h"
#include "constrain/json_string_language.h"
#include "constrain/pushdown_constraint.h"
#include "constrain/text_constraint.h"
#include "tests/constrain/json_texts.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

constexpr size_t kMostTexts = 200;

using Texts = std::vector<std::string>;

// Returns each of `heads` with each of `tails` behind it, as far as there are
// not too many.
Texts Joined(const Texts& heads, const Texts& tails) {
  Texts joined;
  for (const std::string& head : heads) {
    for (const std::string& tail : tails) {
      if (joined.size() < kMostTexts) joined.push_back(head + tail);
    }
  }
  return joined;
}

// Returns texts of a value: of objects in each order of their members, without
// spaces. With many members some are missing.
Texts TextsOf(const json::value& value) {
  if (value.is_array()) {
    Texts texts = {"["};
    for (const json::value& item : value.get_array()) {
      if (&item != &value.get_array()[0]) texts = Joined(texts, {","});
      texts = Joined(texts, TextsOf(item));
    }
    return Joined(texts, {"]"});
  }
  if (!value.is_object()) {
    if (value.is_string()) return {QuoteString(value.get_string())};
    Texts texts = {WriteJson(value)};
    if (value.is_double()) {  // 1e0, 1.0 and 1
      texts.push_back(Concat(value.get_double()));
    }
    return texts;
  }
  const json::object& object = value.get_object();
  std::vector<size_t> order(object.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Texts texts;
  do {
    Texts one = {"{"};
    for (const size_t i : order) {
      const auto& member = *(object.begin() + static_cast<std::ptrdiff_t>(i));
      const std::string_view comma = one.front().size() > 1 ? "," : "";
      one = Joined(one, {Concat(comma, QuoteString(member.key()), ":")});
      one = Joined(one, TextsOf(member.value()));
    }
    for (std::string& text : Joined(one, {"}"})) {
      if (texts.size() < kMostTexts) texts.push_back(std::move(text));
    }
  } while (std::ranges::next_permutation(order).found &&
           texts.size() < kMostTexts);
  return texts;
}

// All bytes, and pieces of the suite's texts. The first token ends a text.
class SuiteVocabulary {
 public:
  explicit SuiteVocabulary(const std::string& corpus) {
    Add("");
    for (int byte = 0; byte < 256; ++byte) Add({static_cast<char>(byte)});
    std::mt19937_64 random(7);
    while (tokens_.size() < 1500) {
      const size_t length = 2 + random() % 7;
      Add(corpus.substr(random() % (corpus.size() - length), length));
    }
    shared_ = std::make_shared<const TokenVocabulary>(tokens_);
  }

  // Returns tokens of the text, drawn.
  std::vector<TokenId> Split(std::string_view text,
                             std::mt19937_64& random) const {
    std::vector<TokenId> split;
    while (!text.empty()) {
      std::vector<std::pair<TokenId, size_t>> fit;
      for (size_t length = 1; length <= std::min<size_t>(text.size(), 8);
           ++length) {
        const auto found = ids_.find(text.substr(0, length));
        if (found != ids_.end()) fit.emplace_back(found->second, length);
      }
      const auto& [token, length] = fit[random() % fit.size()];
      split.push_back(token);
      text.remove_prefix(length);
    }
    return split;
  }
  const std::shared_ptr<const TokenVocabulary>& shared() const {
    return shared_;
  }

 private:
  void Add(const std::string& bytes) {
    const auto id = static_cast<TokenId>(tokens_.size());
    if (ids_.emplace(bytes, id).second) tokens_.push_back(bytes);
  }

  std::vector<std::string> tokens_;
  std::map<std::string, TokenId, std::less<>> ids_;
  std::shared_ptr<const TokenVocabulary> shared_;
};

// True if each token is legal where it stands, and an end behind the last.
bool HasTokens(const Constraint& constraint,
               const std::vector<TokenId>& tokens) {
  constexpr int32_t kRoom = 1'000'000;
  Constraint::State state = constraint.start();
  for (const TokenId token : tokens) {
    const Constraint::Legal legal = constraint.LegalTokens(state, kRoom);
    const bool is_legal = std::ranges::binary_search(legal.tokens, token);
    const Constraint::State next = constraint.Advance(state, token);
    EXPECT_EQ(is_legal, next != Constraint::kNone);
    if (!is_legal) return false;
    state = next;
  }
  if (constraint.ends(state, kRoom)) return constraint.accepts(state, kRoom);
  constexpr TokenId kEnd = 0;
  return std::ranges::binary_search(constraint.LegalTokens(state, kRoom).tokens,
                                    kEnd);
}

std::shared_ptr<const Constraint> Constrain(GrammarLanguage language,
                                            const SuiteVocabulary& vocabulary) {
  constexpr TokenId kEnd = 0;
  if (auto* const calls = std::get_if<PushdownAutomaton>(&language)) {
    auto made = PushdownConstraint::Make(
        std::make_shared<const PushdownAutomaton>(std::move(*calls)),
        vocabulary.shared(),
        {.end_ids = {kEnd}, .max_list_bytes = int64_t{1} << 30});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  auto texts =
      TokenConstraint::Make(std::make_shared<const ByteAutomaton>(
                                std::get<ByteAutomaton>(std::move(language))),
                            vocabulary.shared());
  EXPECT_TRUE(texts.ok()) << texts.status();
  auto made = TextConstraint::Make(*std::move(texts), {kEnd});
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

TEST(JsonSchemaTokensTest, InstancesOfTheSuiteAreAcceptedHoweverTheyAreSplit) {
  std::ifstream file(
      SourcePath("tests/data/json_schema_test_suite/draft2020-12.jsonl"));
  std::vector<json::value> groups;
  std::string corpus;
  for (std::string line; std::getline(file, line);) {
    auto group = ParseJson(line);
    ASSERT_OK(group);
    for (const json::value& test : group->at("tests").as_array()) {
      corpus += WriteJson(test.at("data"));
    }
    groups.push_back(*std::move(group));
  }
  const SuiteVocabulary vocabulary(corpus);
  std::mt19937_64 random(40);
  int num_accepted = 0;
  int num_refused = 0;
  int num_called = 0;
  for (size_t g = 0; g < groups.size(); g += Cases(8, 24)) {
    const std::string schema = WriteJson(groups[g].at("schema"));
    SCOPED_TRACE(schema);
    const auto finite = CompileJsonSchema(schema);
    if (!finite.ok()) continue;
    std::vector<std::shared_ptr<const Constraint>> constraints = {
        Constrain(*finite, vocabulary)};
    auto called = CompileJsonSchemaWithCalls(schema, {.calls_any_value = true});
    if (called.ok() && std::holds_alternative<PushdownAutomaton>(*called)) {
      constraints.push_back(Constrain(*std::move(called), vocabulary));
      ++num_called;
    }
    for (const json::value& test : groups[g].at("tests").as_array()) {
      const bool is_valid = test.at("valid").as_bool();
      const Texts texts = TextsOf(test.at("data"));
      std::optional<std::string> text;
      for (const std::string& one : texts) {
        if (finite->Match(one).in_language) text = one;
      }
      EXPECT_TRUE(is_valid || !text);
      // One that is left out, as is told elsewhere, or has many orders.
      if (is_valid && !text) continue;
      for (int i = 0; i < 5; ++i) {
        const std::vector<TokenId> tokens =
            vocabulary.Split(text.value_or(texts[i % texts.size()]), random);
        for (const auto& constraint : constraints) {
          EXPECT_EQ(HasTokens(*constraint, tokens), is_valid)
              << WriteJson(test.at("data"));
        }
      }
      ++(is_valid ? num_accepted : num_refused);
    }
  }
  EXPECT_GT(num_accepted, Cases(60, 15));
  EXPECT_GT(num_refused, Cases(40, 10));
  EXPECT_GT(num_called, Cases(2, 0));
}

}  // namespace
}  // namespace espalier::testing
