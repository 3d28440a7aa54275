#include "beam/constraint_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/field_error.h"
#include "constrain/text_constraint.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using testing::SharedEnFrTokenizer;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

ModelDescription CachedModel(int vocab_size = 6000) {
  return {.vocab_size = vocab_size,
          .max_context = 200,
          .eos_token_ids = {2},
          .num_pages = 1000};
}

Request Constrained(ConstraintParams constraint) {
  Request request;
  request.prompt_tokens = {1, 4, 337, 5};
  request.num_continued = 0;
  request.params.constraint = std::move(constraint);
  EXPECT_OK(ValidateRequest(CachedModel(), &request));
  return request;
}

Request WithRegex(std::string regex) {
  return Constrained({.regex = std::move(regex)});
}

TEST(ConstraintCacheTest, RequestsWithOneLanguageShareAConstraint) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  ASSERT_OK_AND_ASSIGN(const auto digits, cache.Get(WithRegex("[0-9]+")));
  ASSERT_OK_AND_ASSIGN(const auto same, cache.Get(WithRegex("[0-9]+")));
  EXPECT_EQ(digits, same);
  Request other = WithRegex("[0-9]+");
  other.params.stop_token_ids = {300};
  ASSERT_OK_AND_ASSIGN(const auto with_stop, cache.Get(other));
  EXPECT_NE(digits, with_stop);
  other = WithRegex("[0-9]+");
  other.num_continued.reset();
  ASSERT_OK_AND_ASSIGN(const auto continued, cache.Get(other));
  EXPECT_NE(digits, continued);
  EXPECT_EQ(cache.num_compiled(), 3);
  ASSERT_OK_AND_ASSIGN(const auto choice,
                       cache.Get(Constrained({.choice = {{"a", "bc"}}})));
  ASSERT_OK_AND_ASSIGN(const auto another,
                       cache.Get(Constrained({.choice = {{"ab", "c"}}})));
  EXPECT_NE(choice, another);
  EXPECT_EQ(cache.num_compiled(), 5);
  EXPECT_EQ(*cache.Get(Request{}), nullptr);
}

TEST(ConstraintCacheTest, TheLatestAreKeptUpToTheBytes) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel(), 1);
  ASSERT_OK(cache.Get(WithRegex("a")));
  ASSERT_OK(cache.Get(WithRegex("a")));
  EXPECT_EQ(cache.num_compiled(), 1);
  ASSERT_OK(cache.Get(WithRegex("b")));
  ASSERT_OK(cache.Get(WithRegex("a")));
  EXPECT_EQ(cache.num_compiled(), 3);
  ConstraintCache roomy(SharedEnFrTokenizer(), CachedModel());
  for (int i = 0; i < 570; ++i) {
    ASSERT_OK(roomy.Get(WithRegex("a{" + std::to_string(1 + i % 190) + "}")));
  }
  EXPECT_EQ(roomy.num_compiled(), 190);
}

TEST(ConstraintCacheTest, AnErrorIsKept) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  const absl::Status first = cache.Get(WithRegex("a(?=b)")).status();
  EXPECT_EQ(cache.Get(WithRegex("a(?=b)")).status(), first);
  EXPECT_EQ(cache.num_compiled(), 1);
  // As a choice it is another language.
  ASSERT_OK(cache.Get(Constrained({.choice = {{"a(?=b)"}}})));
  EXPECT_EQ(cache.num_compiled(), 2);
}

TEST(ConstraintCacheTest, ThreadsThatWantOneLanguageCompileItOnce) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  for (const std::string regex :
       {"(a|b|cd){1,900}", "((a|b|cd){1,900}x){9}("}) {
    const Request request = WithRegex(regex);
    const int64_t num_before = cache.num_compiled();
    std::vector<absl::StatusOr<std::shared_ptr<const Constraint>>> found(8);
    std::vector<std::thread> threads;
    for (auto& of_thread : found) {
      threads.emplace_back([&] { of_thread = cache.Get(request); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(cache.num_compiled(), num_before + 1) << regex;
    for (const auto& of_thread : found) EXPECT_EQ(of_thread, found[0]);
  }
}

// Each is compiled again once another one was.
TEST(ConstraintCacheTest, ThreadsThatWantSeveralLanguagesGetThem) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel(), 1);
  std::vector<Request> requests;
  for (const char* const regex : {"a", "b(", "c", "d"}) {
    requests.push_back(WithRegex(regex));
  }
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 200; ++i) {
        const int which = (i + thread) % 4;
        EXPECT_EQ(cache.Get(requests[which]).ok(), which != 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ConstraintCacheTest, AConstraintWhoseListsExceedTheirMemoryIsMadeAnew) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel(), 1 << 20,
                        /*max_list_bytes=*/8'000);
  const Request request = WithRegex("a[^x]*");
  ASSERT_OK_AND_ASSIGN(const auto full, cache.Get(request));
  const auto start = full->LegalTokens(full->start(), 100);
  EXPECT_EQ(*cache.Get(request), full);
  const auto next = full->Advance(full->start(), start.tokens[0]);
  EXPECT_FALSE(full->LegalTokens(next, 100).tokens.empty());
  ASSERT_OK_AND_ASSIGN(const auto anew, cache.Get(request));
  EXPECT_NE(anew, full);
  EXPECT_EQ(*cache.Get(request), anew);
  EXPECT_EQ(cache.num_compiled(), 2);
}

TEST(ConstraintCacheTest, FindCompilesNothing) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  for (const char* const regex : {"a|b", "a("}) {
    const int64_t num_before = cache.num_compiled();
    ASSERT_OK_AND_ASSIGN(const auto language, cache.Find(WithRegex(regex)));
    EXPECT_FALSE(language->is_compiled());
    EXPECT_EQ(*cache.Find(WithRegex(regex)), language);
    EXPECT_NE(*cache.Find(WithRegex("c")), language);
    EXPECT_EQ(cache.num_compiled(), num_before);
    const auto constraint = cache.Compile(language.get());
    EXPECT_TRUE(language->is_compiled());
    EXPECT_EQ(*cache.Find(WithRegex(regex)), language);
    EXPECT_EQ(cache.Compile(language.get()), constraint);
    EXPECT_EQ(cache.num_compiled(), num_before + 1);
  }
}

TEST(ConstraintCacheTest, ALanguageThatNoCallerWaitsForIsForgotten) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  std::weak_ptr<ConstraintLanguage> language = *cache.Find(WithRegex("a|b"));
  EXPECT_TRUE(language.expired());
}

// The lists of `kept` grow after it was added.
TEST(ConstraintCacheTest, TheBytesAreBoundedWhereNothingIsAdded) {
  ConstraintCache probe(SharedEnFrTokenizer(), CachedModel());
  const auto bytes_of = [&](const char* regex) {
    return static_cast<const TextConstraint&>(**probe.Get(WithRegex(regex)))
        .num_bytes();
  };
  constexpr char kLarge[] = "a[^x]*";
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel(),
                        bytes_of("b") + bytes_of(kLarge) + 1'000);
  std::weak_ptr<const Constraint> dropped;
  {
    ASSERT_OK_AND_ASSIGN(const auto kept, cache.Get(WithRegex(kLarge)));
    ASSERT_OK(cache.Get(WithRegex("b")));
    ASSERT_OK(cache.Get(WithRegex("b")));
    EXPECT_EQ(*cache.Get(WithRegex(kLarge)), kept);
    EXPECT_EQ(cache.num_compiled(), 2);
    const auto next = kept->Advance(
        kept->start(), kept->LegalTokens(kept->start(), 100).tokens[0]);
    EXPECT_GT(kept->LegalTokens(next, 100).tokens.size(), 1'000u);
    ASSERT_OK(cache.Get(WithRegex("b")));
    dropped = kept;
  }
  // A request's end destroys none, but the next caller does.
  EXPECT_FALSE(dropped.expired());
  ASSERT_OK(cache.Get(WithRegex("b")));
  EXPECT_TRUE(dropped.expired());
  EXPECT_EQ(cache.num_compiled(), 2);
  ASSERT_OK(cache.Get(WithRegex(kLarge)));
  EXPECT_EQ(cache.num_compiled(), 3);
}

// An ordinary token that ends a sequence takes a vocabulary of its own, which
// counts once for all constraints with these end ids.
TEST(ConstraintCacheTest, VocabulariesOfEndIdsCountOnce) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel(), 2 << 20);
  const auto get_all = [&](bool same_ids) {
    const int64_t num_before = cache.num_compiled();
    for (int i = 0; i < 20; ++i) {
      Request request = WithRegex(Concat("a{", 1 + i % 10, "}"));
      request.params.stop_token_ids = {same_ids ? 300 : 301 + i % 10};
      EXPECT_OK(cache.Get(request));
    }
    return cache.num_compiled() - num_before;
  };
  EXPECT_EQ(get_all(true), 10);
  EXPECT_EQ(get_all(false), 20);
}

TEST(ConstraintCacheTest, ARequestWithoutRoomForATextIsRefused) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  Request request = WithRegex("1{7}|[2-9]{9}");
  ASSERT_OK_AND_ASSIGN(const auto constraint, cache.Get(request));
  int least = 1;
  while (constraint->LegalTokens(constraint->start(), least).tokens.empty()) {
    ++least;
  }
  EXPECT_GE(least, 2);
  request.params.max_new_tokens = least;
  EXPECT_OK(cache.Get(request));
  request.params.max_new_tokens = least - 1;
  EXPECT_THAT(
      cache.Get(request),
      StatusIs(kInvalid, Concat("max_new_tokens must be at least ", least,
                                ", which a text of constraint "
                                "needs, got ",
                                least - 1)));
  // The error is not that of the language.
  request.params.max_new_tokens = least;
  EXPECT_OK(cache.Get(request));
  EXPECT_EQ(cache.num_compiled(), 1);
  request.params.start_after = "1111";
  request.params.max_new_tokens = least;
  EXPECT_THAT(cache.Get(request),
              StatusIs(kInvalid, HasSubstr(", which start_after and a text of "
                                           "constraint need, got ")));
  // An end id alone is an empty text, unless it may not come first.
  request = WithRegex("(1111111)?");
  request.num_continued.reset();  // so that a dropped space is no text, either
  request.params.max_new_tokens = 1;
  EXPECT_OK(cache.Get(request));
  request.params.min_new_tokens = 1;
  EXPECT_THAT(
      cache.Get(request),
      StatusIs(kInvalid, StartsWith("max_new_tokens must be at least")));
}

// The first token of an answer is without the space that the tokenizer drops.
TEST(ConstraintCacheTest, TheFirstTokenIsThatOfTheText) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  const auto tokens = testing::EnFrTokenizer().EncodeOutput("Il pleut.");
  ASSERT_OK(tokens);
  const auto is_legal = [&](const Request& request) {
    const auto constraint = *cache.Get(request);
    Constraint::State state = constraint->start();
    for (const TokenId token : *tokens) {
      state = constraint->Advance(state, token);
      if (state == Constraint::kNone) return false;
    }
    return constraint->ends(state, 100);
  };
  Request answer = Constrained({.choice = {{"Il pleut."}}});
  EXPECT_TRUE(is_legal(answer));
  answer.num_continued.reset();
  answer.prompt_tokens.push_back(300);
  EXPECT_FALSE(is_legal(answer));
  answer = Constrained({.choice = {{" Il pleut."}}});
  answer.num_continued.reset();
  answer.prompt_tokens.push_back(300);
  EXPECT_TRUE(is_legal(answer));
}

// Behind text, however tokens spell it, or behind a special token, which no
// text spells.
TEST(ConstraintCacheTest, AConstraintStartsAfterAMarker) {
  const auto tokenizer = SharedEnFrTokenizer();
  const TokenId special = *tokenizer->PieceToId("<s>");
  ASSERT_TRUE(tokenizer->is_special(special));
  ConstraintCache cache(tokenizer, CachedModel());
  const std::vector<TokenId> text = *tokenizer->EncodeOutput("Bien.7");
  std::vector<TokenId> behind_special = *tokenizer->EncodeOutput("Bien.");
  behind_special.push_back(special);
  behind_special.insert(behind_special.end(), text.begin(), text.end());
  for (const char* const marker : {"<s>", "n."}) {
    Request request = Constrained({.regex = "( ?Bien\\.)?[0-9]"});
    request.params.start_after = marker;
    ASSERT_OK_AND_ASSIGN(const auto constraint, cache.Get(request));
    const auto accepts = [&](const std::vector<TokenId>& tokens) {
      Constraint::State state = constraint->start();
      for (const TokenId token : tokens) {
        state = constraint->Advance(state, token);
        if (state == Constraint::kNone) return false;
      }
      return constraint->accepts(state, 100);
    };
    const bool is_special = std::string_view(marker) == "<s>";
    EXPECT_EQ(accepts(behind_special), is_special);
    EXPECT_EQ(accepts(text), !is_special);
  }
  EXPECT_EQ(cache.num_compiled(), 2);
}

TEST(ConstraintCacheTest, AnEndingTokenIsNoMarker) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  Request request = WithRegex("[0-9]");
  request.params.start_after = "</s>";
  EXPECT_THAT(cache.Get(request).status(),
              StatusIs(kInvalid, HasSubstr("start_after must not be a special "
                                           "token that ends the output, got "
                                           "\"</s>\"")));
}

// The tokenizer has more tokens than this model.
TEST(ConstraintCacheTest, LegalTokensAreTheModels) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel(270));
  const auto constraint = cache.Get(WithRegex("[^x]*"));
  ASSERT_OK(constraint);
  const auto legal =
      (*constraint)->LegalTokens((*constraint)->start(), 100).tokens;
  EXPECT_GT(legal.size(), 150);
  EXPECT_LT(legal.back(), 270);
}

TEST(ConstraintCacheTest, LongRepetitionsAreCountedWithoutMustContain) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  const std::string regex = "<[a-z]{0,1000000}>";
  EXPECT_OK(cache.Get(WithRegex(regex)));
  const Request request = Constrained({.regex = regex, .must_contain = {"a"}});
  EXPECT_THAT(cache.Get(request),
              StatusIs(kInvalid, HasSubstr("constraint.regex: it needs more")));
}

TEST(ConstraintCacheTest, WhatCannotBeCompiledIsNamed) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  for (const auto& [regex, message] :
       std::vector<std::pair<std::string, std::string>>{
           {"a(?=b)", "look-ahead"},
           {"(", "constraint.regex: "},
           {"(((a{1,1000}){1,1000}){1,1000}", "constraint.regex: "},
           {"((a|b|cd){1,900}x){1,900}", "the limit"},
           {"[^\\s\\S]", "constraint.regex: "}}) {
    const absl::Status status = cache.Get(WithRegex(regex)).status();
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(message))) << regex;
    EXPECT_THAT(std::string(status.message()), StartsWith("constraint.regex: "))
        << regex;
    EXPECT_TRUE(FieldErrorOf(status).has_value());
  }
  EXPECT_THAT(cache.Get(Constrained({.choice = SharedList<std::string>()})),
              StatusIs(kInvalid, StartsWith("constraint.choice: ")));
  ConstraintCache few(SharedEnFrTokenizer(), CachedModel(40));
  EXPECT_THAT(few.Get(WithRegex("abc")),
              StatusIs(kInvalid,
                       "constraint.regex: the vocabulary can spell no text of "
                       "the language"));
  ConstraintCache without(nullptr, CachedModel());
  EXPECT_THAT(without.Get(WithRegex("a")),
              StatusIs(kInvalid,
                       "constraint must be unset without a tokenizer, which "
                       "makes the text that it is of, got regex"));
}

// Strings of a schema that would have counters are unrolled; what recurs cannot
// be.
TEST(ConstraintCacheTest, MustContainGoesWithWhatDoesNotRecur) {
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  const auto compile = [&](ConstraintParams constraint) {
    constraint.must_contain = {"a", "b"};
    return cache.Get(Constrained(std::move(constraint))).status();
  };
  EXPECT_OK(compile({}));
  EXPECT_OK(compile({.regex = "[a-c]+"}));
  EXPECT_OK(
      compile({.json_schema = R"({"type": "string", "maxLength": 2000})"}));
  EXPECT_THAT(
      compile({.json_schema = R"({"properties": {"a": {"$ref": "#"}}})"}),
      StatusIs(kInvalid, HasSubstr("must_contain must be empty with "
                                   "constraint.json_schema that recurs")));
  EXPECT_THAT(compile({.grammar = "root ::= \"(\" root \")\" | \"a\""}),
              StatusIs(kInvalid, HasSubstr("constraint.grammar that recurs")));
  EXPECT_THAT(compile({.regex = "a*"}),
              StatusIs(kInvalid, HasSubstr("contains all words")));
  EXPECT_EQ(cache.num_compiled(), 6);
}

TEST(ConstraintCacheTest, ManyChoicesAreCompiled) {
  std::vector<std::string> texts;
  for (int i = 0; i < 100'000; ++i) texts.push_back(std::to_string(i * 7919));
  ConstraintCache cache(SharedEnFrTokenizer(), CachedModel());
  const auto constraint = cache.Get(Constrained({.choice = std::move(texts)}));
  ASSERT_OK(constraint);
  EXPECT_LE(
      (*constraint)->LegalTokens((*constraint)->start(), 100).tokens.size(),
      6000);
}

}  // namespace
}  // namespace espalier
