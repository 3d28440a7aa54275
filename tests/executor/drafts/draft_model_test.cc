// A draft model that is far behind catches up in chunks: none of its steps
// exceeds the plan's limits, and once it has caught up, its drafts are those of
// a model that was fed at once.
#include "executor/drafts/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "beam/strategy/allowed_sequences.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace espalier::testing {
namespace {

constexpr int kPromptTokens = 200;

// Keeps the tokens of its largest step, and of all.
class StepCountingModel : public ToyModel {
 public:
  explicit StepCountingModel(int num_pages = 400)
      : ToyModel({.num_tokens_read = 3,
                  .page_size = 4,
                  .num_pages = num_pages,
                  .has_shareable_pages = true}) {}
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    const int num_tokens = static_cast<int>(plan.tokens.size());
    largest = std::max(largest, num_tokens);
    num_fed += num_tokens;
    return ToyModel::Forward(plan, logits);
  }

  int largest = 0;
  int num_fed = 0;
};

struct ChunkedDraftModel {
  explicit ChunkedDraftModel(int num_pages = 400)
      : steps(std::make_shared<StepCountingModel>(num_pages)) {}

  std::shared_ptr<StepCountingModel> steps;
  std::unique_ptr<DraftModel> drafts =
      *DraftModel::Create(steps, *ThreadPool::Create(1));

  std::vector<DraftedTokens> Run(const StepPlan& plan) {
    const absl::StatusOr<std::vector<DraftedTokens>> answer = drafts->Run(plan);
    EXPECT_OK(answer.status());
    return *answer;
  }
};

// Returns a plan with three sequences of a request that share its prompt:
// samples, or the beams of a search.
StepPlan PlanOfThreeSequences(bool is_search, int request) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < kPromptTokens; ++i) prompt.push_back(1 + i % 9);
  const auto shared =
      std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  auto params = std::make_shared<SelectionParams>();
  std::shared_ptr<const DraftedSearch> search;
  if (is_search) {
    search = std::make_shared<const DraftedSearch>(DraftedSearch{
        .num_beams = 3, .num_candidates = 6, .eos_token_ids = {0}});
  }
  StepPlan plan;
  for (int i = 0; i < 3; ++i) {
    plan.drafting.push_back({.request = RequestId{request},
                             .sample = i,
                             .prompt = shared,
                             .generated = {4, 5, 6 + i},
                             .num_tokens = 3,
                             .params = params,
                             .search = search});
  }
  return plan;
}

bool HasDraft(const DraftedTokens& draft) {
  return !draft.tokens.empty() || !draft.paths.empty();
}

std::vector<std::vector<TokenId>> AllTokens(
    const std::vector<DraftedTokens>& drafts) {
  std::vector<std::vector<TokenId>> all;
  for (const DraftedTokens& draft : drafts) {
    all.push_back(draft.tokens);
    for (const DraftPath& path : draft.paths) all.push_back(path.tokens);
  }
  return all;
}

class DraftModelTest : public ::testing::TestWithParam<bool> {};

TEST_P(DraftModelTest, ALongPromptIsFedInChunks) {
  constexpr int kMostTokens = 16;
  ChunkedDraftModel at_once;
  StepPlan plan = PlanOfThreeSequences(GetParam(), 1);
  const std::vector<DraftedTokens> expected = at_once.Run(plan);
  ASSERT_TRUE(std::ranges::all_of(expected, HasDraft));
  EXPECT_GT(at_once.steps->largest, kPromptTokens);

  ChunkedDraftModel chunked;
  plan.max_draft_step_tokens = kMostTokens;
  int num_behind = 0;
  std::vector<DraftedTokens> drafts = chunked.Run(plan);
  for (; drafts[2].is_behind; drafts = chunked.Run(plan)) {
    ASSERT_LT(++num_behind, 100);
    EXPECT_TRUE(std::ranges::none_of(
        drafts, [](const auto& d) { return d.is_behind && HasDraft(d); }));
  }
  EXPECT_GE(num_behind, kPromptTokens / kMostTokens);
  EXPECT_LE(chunked.steps->largest, kMostTokens);
  EXPECT_EQ(AllTokens(drafts), AllTokens(expected));
  // Chunked prefill feeds each token once, except rejected drafts.
  EXPECT_LE(chunked.steps->num_fed, at_once.steps->num_fed + 3 * kMostTokens);
}

TEST_P(DraftModelTest, OneThatIsBehindLeavesRoomForOthers) {
  // Whichever came first.
  for (const int request : {1, 2}) {
    ChunkedDraftModel model;
    const StepPlan caught_up = PlanOfThreeSequences(GetParam(), request);
    model.Run(caught_up);
    const StepPlan behind = PlanOfThreeSequences(GetParam(), 3 - request);
    StepPlan both;
    for (const StepPlan* plan : {request == 1 ? &caught_up : &behind,
                                 request == 1 ? &behind : &caught_up}) {
      both.drafting.insert(both.drafting.end(), plan->drafting.begin(),
                           plan->drafting.end());
    }
    both.max_draft_step_tokens = 20;
    model.steps->largest = 0;
    for (int i = 0; i < 3; ++i) {
      const std::vector<DraftedTokens> drafts = model.Run(both);
      const std::span first = std::span(drafts).first(3);
      const std::span last = std::span(drafts).last(3);
      EXPECT_TRUE(std::ranges::all_of(request == 1 ? first : last, HasDraft));
      EXPECT_TRUE(std::ranges::all_of(request == 1 ? last : first,
                                      &DraftedTokens::is_behind));
    }
    EXPECT_LE(model.steps->largest, 20);
  }
}

TEST_P(DraftModelTest, RowsOfLogitsAreCounted) {
  ChunkedDraftModel model;
  StepPlan plan = PlanOfThreeSequences(GetParam(), 1);
  model.Run(plan);
  EXPECT_EQ(model.drafts->num_rows(), 3 * 3);
  model.Run({});
  EXPECT_EQ(model.drafts->num_rows(), 0);
  plan = PlanOfThreeSequences(GetParam(), 2);
  plan.max_draft_step_tokens = 16;
  model.Run(plan);
  EXPECT_EQ(model.drafts->num_rows(), 0);
}

// Drafts would look dear for a prompt that is fed once.
TEST_P(DraftModelTest, APassThatCatchesUpIsNotInWhatDraftsCost) {
  ChunkedDraftModel model;
  StepPlan plan = PlanOfThreeSequences(GetParam(), 1);
  plan.drafting.resize(1);
  EXPECT_TRUE(HasDraft(model.Run(plan)[0]));
  const int num_first_rows = model.drafts->num_rows();
  EXPECT_GT(model.drafts->draft_time(), absl::ZeroDuration());
  model.Run(plan);
  EXPECT_EQ(num_first_rows, model.drafts->num_rows() - 1);
  model.Run({});
  EXPECT_EQ(model.drafts->draft_time(), absl::ZeroDuration());
}

// Each sequence of the second request takes 26 pages of 70, of which the first
// one holds 20.
TEST_P(DraftModelTest, WhatFindsNoPagesTakesThemFromNobody) {
  ChunkedDraftModel model(70);
  StepPlan fits = PlanOfThreeSequences(false, 1);
  fits.drafting.resize(1);
  fits.drafting[0].prompt = std::make_shared<const std::vector<TokenId>>(74, 3);
  model.Run(fits);
  ASSERT_EQ(model.drafts->pages().num_held(), 20);
  StepPlan large = PlanOfThreeSequences(GetParam(), 2);
  for (DraftSequence& sequence : large.drafting) {
    sequence.prompt = std::make_shared<const std::vector<TokenId>>(1, 3);
    sequence.generated.assign(101, 1 + sequence.sample);
  }
  const std::vector<DraftedTokens> drafts = model.Run(large);
  const int64_t num_drafted = std::ranges::count_if(drafts, HasDraft);
  if (GetParam()) {
    EXPECT_EQ(num_drafted, 0);  // all beams or none
    model.steps->num_fed = 0;
    EXPECT_TRUE(HasDraft(model.Run(fits)[0]));
    EXPECT_LE(model.steps->num_fed, 2 * 3);
  } else {
    // The second takes those of the first request, the third finds none.
    EXPECT_EQ(num_drafted, 2);
  }
}

// The first of the second request's sequences leaves too little for the other.
TEST_P(DraftModelTest, WhatFindsNoPagesBesideOthersTakesThemFromNobody) {
  ChunkedDraftModel model(70);
  StepPlan fits = PlanOfThreeSequences(false, 1);
  fits.drafting.resize(1);
  fits.drafting[0].prompt = std::make_shared<const std::vector<TokenId>>(74, 3);
  model.Run(fits);
  StepPlan large = PlanOfThreeSequences(false, 2);
  StepPlan larger = PlanOfThreeSequences(GetParam(), 3);
  large.drafting.resize(1);
  larger.drafting.resize(1);
  large.drafting[0].prompt =
      std::make_shared<const std::vector<TokenId>>(160, 3);
  larger.drafting[0].prompt =
      std::make_shared<const std::vector<TokenId>>(180, 3);
  large.drafting.push_back(larger.drafting[0]);
  const std::vector<DraftedTokens> drafts = model.Run(large);
  EXPECT_TRUE(HasDraft(drafts[0]));
  EXPECT_FALSE(HasDraft(drafts[1]));
  model.steps->num_fed = 0;
  EXPECT_TRUE(HasDraft(model.Run(fits)[0]));
  EXPECT_LE(model.steps->num_fed, 2 * 3);
}

// With a constraint, illegal tokens have probability 0, and the logits of legal
// ones are those without it. A draft ends where nothing may follow.
TEST(ConstrainedDraftTest, LegalTokensAreDrafted) {
  GenerationParams params;
  params.allowed_sequences = {{1, 2, 3, 4}, {1, 2, 5, 6, 7}, {1, 5, 5, 5, 5},
                              {2, 8, 1, 3}, {2, 8, 2},       {3, 1, 1, 1, 1}};
  const auto constraint = AllowedSequencesOf(params);
  auto selection = std::make_shared<SelectionParams>();
  selection->sampling.temperature = 1;
  StepPlan plan = PlanOfThreeSequences(/*is_search=*/false, 1);
  for (DraftSequence& sequence : plan.drafting) {
    sequence.generated = {1 + sequence.sample};
    sequence.num_tokens = 6;
    sequence.params = selection;
  }
  const std::vector<DraftedTokens> unmasked = ChunkedDraftModel().Run(plan);
  for (DraftSequence& sequence : plan.drafting) {
    sequence.constraint = constraint;
    sequence.place = {
        constraint->Advance(constraint->start(), sequence.generated[0]), 8};
  }
  const std::vector<DraftedTokens> drafts = ChunkedDraftModel().Run(plan);
  for (int i = 0; i < 3; ++i) {
    const auto [state, room] = plan.drafting[i].place;
    const size_t vocab_size = unmasked[i].logits.size() / 6;
    ASSERT_EQ(drafts[i].logits.size(), drafts[i].tokens.size() * vocab_size);
    ConstraintPlace place = {state, room};
    for (size_t j = 0; j < drafts[i].tokens.size(); ++j) {
      const auto legal =
          constraint->LegalTokens(place.state, place.room).tokens;
      const auto row =
          drafts[i].logits.values().subspan(j * vocab_size, vocab_size);
      for (TokenId token = 0; token < std::ssize(row); ++token) {
        if (!std::ranges::binary_search(legal, token)) {
          EXPECT_EQ(row[token], -std::numeric_limits<float>::infinity());
        } else if (j == 0) {
          EXPECT_EQ(row[token], unmasked[i].logits.values()[token]);
        }
      }
      EXPECT_TRUE(std::ranges::binary_search(legal, drafts[i].tokens[j]));
      place = {constraint->Advance(place.state, drafts[i].tokens[j]),
               place.room - 1};
    }
    EXPECT_TRUE(constraint->ends(place.state, place.room));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DraftModelTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Search" : "Samples";
                         });

TEST(DraftTextTest, CopiesShareThePrompt) {
  const auto prompt =
      std::make_shared<const std::vector<TokenId>>(std::vector{1, 2, 3});
  const DraftText whole(prompt, {4, 5});
  EXPECT_EQ(prompt.use_count(), 2);
  for (size_t size = 0; size <= 5; ++size) {
    const DraftText first = whole.First(size);
    EXPECT_EQ(first.size(), size);
    EXPECT_EQ(CommonLength(first, whole), size);
    EXPECT_EQ(CommonLength(whole, first), size);
    for (size_t from = 0; from <= size; ++from) {
      std::vector<TokenId> tokens;
      first.CopyTo(from, size, &tokens);
      ASSERT_EQ(tokens.size(), size - from);
      for (size_t i = from; i < size; ++i) {
        EXPECT_EQ(tokens[i - from], static_cast<TokenId>(1 + i));
      }
    }
    DraftText cut = whole;
    cut.Truncate(size);
    EXPECT_EQ(CommonLength(cut, first), size);
    cut.GrowTo(5, whole);
    EXPECT_EQ(CommonLength(cut, whole), 5u);
  }
  const DraftText other(
      std::make_shared<const std::vector<TokenId>>(std::vector{1, 2, 9}), {4});
  EXPECT_EQ(CommonLength(whole, other), 2u);
  EXPECT_EQ(CommonLength(whole, DraftText(prompt, {4, 6})), 4u);
}

}  // namespace
}  // namespace espalier::testing
