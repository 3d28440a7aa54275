// A group whose executor makes masks of its constraint's tables, and runs ahead
// of its results where it can, gives what its strategy gives alone by lists of
// legal tokens. Beams that end in many ways at once lack candidates, and their
// steps are planned again.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "constrain/item_constraint.h"
#include "constrain/regex_language.h"
#include "constrain/text_constraint.h"
#include "tests/beam/group_driver.h"
#include "tests/beam/search_alone.h"
#include "tests/constrain/token_lists.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::GroupDriver;
using testing::ToyModelOptions;

constexpr TokenId kEndOfLetters = 0;

// Letters, alone and in pairs; two tokens are spelt alike.
std::vector<std::string> PairsOfLetters() {
  std::vector<std::string> tokens = {""};
  for (const char first : {'a', 'b', 'c', 'd'}) {
    tokens.emplace_back(1, first);
    for (const char second : {'a', 'b', 'c', 'd'}) {
      tokens.push_back({first, second});
    }
  }
  tokens.push_back("ab");
  return tokens;
}

// Tokens but for the first; some items begin others, some end by it. One always
// fits.
std::shared_ptr<const Constraint> AnyItems(int vocab_size) {
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  const int num_tokens = *rc::gen::element(2, 4, vocab_size - 1);
  Lists items = RandomLists(random, *rc::gen::inRange(1, 200),
                            *rc::gen::inRange(1, 9), num_tokens);
  const bool has_end_ids = *rc::gen::arbitrary<bool>();
  for (std::vector<TokenId>& item : items) {
    for (TokenId& token : item) ++token;
    if (has_end_ids && random() % 8 == 0) item.push_back(kEndOfLetters);
  }
  Lists excluded;
  if (*rc::gen::arbitrary<bool>()) {
    for (const std::vector<TokenId>& item : items) {
      if (random() % 4 == 0) excluded.push_back(item);
    }
  }
  items.push_back({num_tokens, num_tokens, num_tokens});
  std::erase(excluded, items.back());
  ItemOptions item_options = {.excluded = ListsOf(excluded),
                              .min_length = *rc::gen::element(0, 0, 2),
                              .vocab_size = vocab_size};
  if (has_end_ids) item_options.end_ids = {kEndOfLetters};
  return std::make_shared<const ItemConstraint>(
      std::make_shared<const ItemCatalogue>(ListsOf(items)),
      std::move(item_options));
}

std::shared_ptr<const Constraint> AnyConstraint() {
  const auto vocab_size = static_cast<int>(PairsOfLetters().size());
  if (*rc::gen::inRange(0, 3) == 0) return AnyItems(vocab_size);
  const std::string pattern = *rc::gen::element<std::string>(
      "[a-d]+", "[a-d]{4,7}", "(a|bc*|dd)+", "a[bc]{0,3}", "[abc]{3}",
      "(ab?c?)*d", "abcabc|ab|d?", "[^d]{2,5}", "(aa?|b){1,3}d", "[ab]*[cd]",
      "a{2}[a-d]{0,2}|b+");
  static const auto* const kVocabulary =
      new std::shared_ptr<const TokenVocabulary>(
          std::make_shared<const TokenVocabulary>(PairsOfLetters()));
  std::vector<TokenId> end_ids;
  if (*rc::gen::arbitrary<bool>()) end_ids.push_back(kEndOfLetters);
  auto texts = TokenConstraint::Make(
      std::make_shared<const ByteAutomaton>(*CompileRegex(pattern)),
      *kVocabulary);
  RC_ASSERT(Message(texts.status()) == "");
  auto constraint = TextConstraint::Make(*std::move(texts), end_ids);
  RC_ASSERT(Message(constraint.status()) == "");
  return *std::move(constraint);
}

ToyModelOptions AnyModelOfPairs() {
  ToyModelOptions options;
  options.vocab_size = static_cast<int>(PairsOfLetters().size());
  options.seed = *rc::gen::arbitrary<uint64_t>();
  options.eos_boost = *rc::gen::element(-4.0f, 0.0f, 4.0f);
  options.impossible_percent = *rc::gen::element(0, 0, 20, 70);
  options.page_size = *rc::gen::element(1, 2, 3, 16);
  options.num_pages = 2000;
  return options;
}

Request AnyConstrainedRequest(const ToyModelOptions& options) {
  Request request;
  request.prompt_tokens = *rc::gen::resize(
      20, rc::gen::nonEmpty(rc::gen::container<std::vector<TokenId>>(
              rc::gen::inRange(0, options.vocab_size))));
  GenerationParams& params = request.params;
  params.num_beams = *rc::gen::inRange(1, 9);
  params.num_return_sequences = *rc::gen::inRange(1L, params.num_beams + 1);
  params.max_new_tokens = *rc::gen::inRange(6, 20);
  params.length_penalty = *rc::gen::element(-1.0, 0.0, 1.0);
  params.early_stopping =
      *rc::gen::element(EarlyStopping::kFalse, EarlyStopping::kNever);
  params.eos_token_id = {kEndOfLetters};
  params.seed = *rc::gen::arbitrary<uint64_t>();
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      params.num_beam_groups = 2;
      params.num_beams *= 2;
      params.diversity_penalty = 0.3;
      break;
    case 1:
      params.stochastic = true;
      break;
    case 2:
    case 3:
      params.do_sample = true;
      params.num_return_sequences = params.num_beams;
      params.num_beams = 1;
      break;
    default:
      break;
  }
  if (*rc::gen::inRange(0, 4) == 0) params.repetition_penalty = 1.5;
  if (*rc::gen::inRange(0, 4) == 0) params.logprobs = 2;
  return request;
}

RC_GTEST_PROP(ConstrainedGroupsPropertyTest, MasksGiveWhatListsGiveAlone, ()) {
  const ToyModelOptions options = AnyModelOfPairs();
  GroupDriver driver(options, /*run_ahead=*/true);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<const Constraint>> constraints;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(AnyConstrainedRequest(options));
    constraints.push_back(AnyConstraint());
    RC_ASSERT(Message(driver.Add(requests[i], *rc::gen::element(1, 5, 100),
                                 constraints[i])) == "");
    if (*rc::gen::arbitrary<bool>()) RC_ASSERT(Message(driver.Step()) == "");
  }
  while (!driver.done()) {
    RC_ASSERT(Message(driver.Step()) == "");
    if (*rc::gen::inRange(0, 4) == 0) {
      RC_ASSERT(Message(driver.CatchUp()) == "");
    }
  }
  RC_ASSERT(Message(driver.Finish()) == "");
  for (size_t i = 0; i < requests.size(); ++i) {
    const absl::StatusOr<Result> alone = testing::SearchAsTheEngine(
        testing::ToyLogitsModel(options), requests[i], nullptr, constraints[i]);
    RC_ASSERT(driver.status(i) ==
              ExplainNoToken(alone.status(), requests[i].params));
    if (!alone.ok()) continue;
    const Result result = driver.group(i).TakeResult();
    RC_ASSERT(result.hypotheses.size() == alone->hypotheses.size());
    for (size_t h = 0; h < result.hypotheses.size(); ++h) {
      RC_ASSERT(result.hypotheses[h].tokens == alone->hypotheses[h].tokens);
      RC_ASSERT(result.hypotheses[h].score == alone->hypotheses[h].score);
      RC_ASSERT(result.hypotheses[h].finish_reason ==
                alone->hypotheses[h].finish_reason);
    }
    RC_ASSERT(result.usage.num_steps == alone->usage.num_steps);
    RC_ASSERT(result.threshold == alone->threshold);
  }
  RC_CLASSIFY(driver.num_continuations() > 0, "went ahead");
  RC_CLASSIFY(driver.num_repeated() > 0, "repeated a step");
}

// Many of 8 beams end at once, by any of several tokens.
TEST(ConstrainedGroupsTest, RunAheadAndRepeatStepsThatLackBeams) {
  auto texts = TokenConstraint::Make(
      std::make_shared<const ByteAutomaton>(*CompileRegex("[ab]{4,}[cd]{0,2}")),
      std::make_shared<const TokenVocabulary>(PairsOfLetters()));
  ASSERT_OK(texts);
  ASSERT_OK_AND_ASSIGN(
      const std::shared_ptr<const Constraint> constraint,
      TextConstraint::Make(*std::move(texts), {kEndOfLetters}));
  int num_repeated = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const ToyModelOptions options = {
        .vocab_size = static_cast<int>(PairsOfLetters().size()),
        .seed = seed,
        .num_pages = 500};
    Request request;
    request.prompt_tokens = {1, 2, 3};
    request.params.num_beams = 8;
    request.params.num_return_sequences = 8;
    request.params.max_new_tokens = 12;
    request.params.eos_token_id = {kEndOfLetters};
    GroupDriver driver(options, /*run_ahead=*/true);
    ASSERT_OK(driver.Add(request, 100, constraint));
    ASSERT_OK(driver.Finish());
    EXPECT_GT(driver.num_continuations(), 3);
    num_repeated += driver.num_repeated();
    ASSERT_OK_AND_ASSIGN(
        const Result alone,
        testing::SearchAsTheEngine(testing::ToyLogitsModel(options), request,
                                   nullptr, constraint));
    const Result result = driver.group(0).TakeResult();
    ASSERT_EQ(result.hypotheses.size(), alone.hypotheses.size());
    for (size_t h = 0; h < alone.hypotheses.size(); ++h) {
      EXPECT_EQ(result.hypotheses[h].tokens, alone.hypotheses[h].tokens);
    }
    EXPECT_EQ(result.usage.num_steps, alone.usage.num_steps);
  }
  EXPECT_GT(num_repeated, 10);
}

// All beams end after the last token of an item: none lacks, and no step is
// planned ahead of it, although max_new_tokens is larger.
TEST(ConstrainedGroupsTest, ItemsOfOneLengthTakeAStepForEachToken) {
  const auto vocab_size = static_cast<int>(PairsOfLetters().size());
  std::mt19937 random(3);
  Lists items;
  for (int i = 0; i < 2000; ++i) {
    std::vector<TokenId>& item = items.emplace_back();
    for (int t = 0; t < 4; ++t) item.push_back(1 + random() % 5);
  }
  const auto constraint = std::make_shared<const ItemConstraint>(
      std::make_shared<const ItemCatalogue>(ListsOf(items)),
      ItemOptions{.end_ids = {kEndOfLetters}, .vocab_size = vocab_size});
  Request request;
  request.prompt_tokens = {1, 2, 3};
  request.params.num_beams = 8;
  request.params.max_new_tokens = 10;
  request.params.eos_token_id = {kEndOfLetters};
  GroupDriver driver({.vocab_size = vocab_size, .num_pages = 500},
                     /*run_ahead=*/true);
  ASSERT_OK(driver.Add(request, 100, constraint));
  int num_plans = 0;
  for (; !driver.done(); ++num_plans) ASSERT_OK(driver.Step());
  EXPECT_EQ(driver.num_continuations(), 3);
  EXPECT_EQ(num_plans, driver.group(0).TakeResult().usage.num_steps + 1);
}

}  // namespace
}  // namespace espalier
