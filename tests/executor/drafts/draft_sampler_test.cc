// A draft model with a sampler drafts the same tokens as without: over texts
// that grow by some of the drafts, for samples that share prompts and have
// different lengths, with processors that the sampler supports and others.
#include "executor/drafts/draft_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/page_count.h"
#include "base/status.h"
#include "executor/drafts/draft_model.h"
#include "kernels/verify/verify.h"
#include "pages/page_table.h"
#include "tests/executor/drafts/toy_device.h"
#include "tests/executor/growing_texts.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace espalier::testing {
namespace {

constexpr int kToyPageSize = 3;

// Draws as a device would, but step by step, with the model itself.
class StepwiseSampler : public DraftSampler {
 public:
  explicit StepwiseSampler(std::shared_ptr<Model> model)
      : model_(std::move(model)) {}

  bool CanSample(const DraftSequence& sequence) const override {
    return sequence.search == nullptr &&
           !sequence.params->processors.needs_history();
  }
  int max_row_tokens() const override { return 2; }
  int max_draft_tokens() const override { return 3; }

  absl::StatusOr<std::vector<SampledDraft>> Sample(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) override {
    std::vector<SampledDraft> drafts(sequences.size());
    StepPlan step = plan;
    int longest = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const PlanRow& row = plan.rows[i];
      EXPECT_LE(row.num_tokens, max_row_tokens());
      EXPECT_EQ(row.num_logits, 1);
      EXPECT_LE(sequences[i]->num_tokens, max_draft_tokens());
      const int num_fed =
          row.first_position + row.num_tokens + sequences[i]->num_tokens - 1;
      EXPECT_EQ(plan.row_pages(i).size(),
                static_cast<size_t>(NumPages(num_fed, kToyPageSize)));
      longest = std::max(longest, sequences[i]->num_tokens);
    }
    for (int drafted = 0; drafted < longest; ++drafted) {
      std::vector<float> logits(step.num_logits * vocab_size());
      TakePages(plan, &step);
      RETURN_IF_ERROR(model_->Forward(step, logits));
      step.page_copies.clear();
      Draw(sequences, drafted, logits, &step, &drafts);
    }
    ++num_calls;
    num_sampled += sequences.size();
    return drafts;
  }

  // The drafts are available after Wait().
  absl::StatusOr<std::vector<SampledDraft>> Start(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) override {
    EXPECT_TRUE(started_.empty()) << "the model is used";
    ASSIGN_OR_RETURN(std::vector<SampledDraft> drafts, Sample(plan, sequences));
    for (SampledDraft& draft : drafts) {
      const auto& [tokens, memory] = started_.emplace_back(
          draft.tokens, std::make_shared<std::vector<TokenId>>(
                            2 * draft.tokens.size(), 1000));
      draft.pending = PendingDraft({memory, memory->data()}, 2,
                                   static_cast<int>(tokens.size()), nullptr);
      draft.tokens.clear();
    }
    ++num_started;
    return drafts;
  }
  absl::StatusOr<absl::Duration> Wait() override {
    if (!next_wait.ok()) {
      started_.clear();
      return std::exchange(next_wait, absl::OkStatus());
    }
    for (const auto& [tokens, memory] : std::exchange(started_, {})) {
      for (size_t i = 0; i < tokens.size(); ++i) (*memory)[2 * i] = tokens[i];
    }
    return absl::ZeroDuration();
  }

  // True if this sampler drafts for the sequence.
  bool DrawsFor(const DraftSequence& sequence) const {
    return CanSample(sequence) && sequence.num_tokens <= max_draft_tokens();
  }

  absl::Status next_wait = absl::OkStatus();  // result of the next Wait()
  int num_calls = 0;
  int num_started = 0;
  size_t num_sampled = 0;

 private:
  int vocab_size() const { return model_->description().vocab_size; }

  // The pages that each row needs.
  static void TakePages(const StepPlan& plan, StepPlan* step) {
    step->page_indices.clear();
    step->page_indptr = {0};
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      const PlanRow& row = step->rows[i];
      const auto pages = plan.row_pages(i).first(
          NumPages(row.first_position + row.num_tokens, kToyPageSize));
      step->page_indices.append(pages);
      step->page_indptr.push_back(static_cast<int>(step->page_indices.size()));
    }
  }

  // Samples a token for each unfinished sequence, which the next step feeds. A
  // finished one feeds its last token again, at the same position.
  void Draw(std::span<const DraftSequence* const> sequences, int drafted,
            std::span<const float> logits, StepPlan* step,
            std::vector<SampledDraft>* drafts) {
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < sequences.size(); ++i) {
      PlanRow& row = step->rows[i];
      TokenId token = step->row_tokens(row).back();
      row.first_position += row.num_tokens - 1;
      if (drafted < sequences[i]->num_tokens) {
        token = DrawDraftFor(
            *sequences[i],
            static_cast<int>(sequences[i]->generated.size()) + drafted,
            logits.subspan(i * vocab_size(), vocab_size()));
        (*drafts)[i].tokens.push_back(token);
        if (drafted + 1 < sequences[i]->num_tokens)
          ++row.first_position;
        else
          token = step->row_tokens(row).back();
      }
      row.num_tokens = 1;
      row.first_token = static_cast<int>(i);
      tokens.push_back(std::max(token, 0));
      if (!NeedsDraftLogits(*sequences[i]->params) ||
          drafted >= sequences[i]->num_tokens) {
        continue;
      }
      kept_[i].insert(kept_[i].end(), logits.begin() + i * vocab_size(),
                      logits.begin() + (i + 1) * vocab_size());
      if (drafted + 1 == sequences[i]->num_tokens) {
        (*drafts)[i].logits = DraftLogits(std::exchange(kept_[i], {}));
      }
    }
    step->tokens = std::move(tokens);
  }

  const std::shared_ptr<Model> model_;
  std::vector<float> kept_[64];
  std::vector<
      std::pair<std::vector<TokenId>, std::shared_ptr<std::vector<TokenId>>>>
      started_;
};

// A draft model, with a sampler or without.
struct SampledModel {
  SampledModel(bool has_sampler, int num_pages)
      : toy(std::make_shared<ToyModel>(
            ToyModelOptions{.num_tokens_read = 4,
                            .page_size = kToyPageSize,
                            .num_pages = num_pages,
                            .has_shareable_pages = true})),
        sampler(has_sampler ? std::make_shared<StepwiseSampler>(toy) : nullptr),
        drafts(*DraftModel::Create(toy, *ThreadPool::Create(1), sampler)) {}

  std::vector<DraftedTokens> Run(const StepPlan& plan) {
    auto answer = drafts->Run(plan);
    EXPECT_OK(answer.status());
    return *std::move(answer);
  }

  std::shared_ptr<ToyModel> toy;
  std::shared_ptr<StepwiseSampler> sampler;
  std::unique_ptr<DraftModel> drafts;
};

TEST(DraftSamplerTest, DraftsAreThoseOfTheHost) {
  size_t num_sampled = 0;
  for (int seed = 0; seed < Cases(60, 20); ++seed) {
    SCOPED_TRACE(seed);
    GrowingTexts texts(seed, 11);
    SampledModel plain(false, 400);
    SampledModel sampled(true, 400);
    for (int step = 0; step < 12; ++step) {
      const StepPlan plan = texts.Plan();
      const std::vector<DraftedTokens> expected = plain.Run(plan);
      const std::vector<DraftedTokens> actual = sampled.Run(plan);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(actual[i].tokens, expected[i].tokens);
        ASSERT_EQ(actual[i].is_behind, expected[i].is_behind);
        ASSERT_TRUE(std::ranges::equal(actual[i].logits.values(),
                                       expected[i].logits.values()));
      }
      texts.Grow(expected);
    }
    num_sampled += sampled.sampler->num_sampled;
    EXPECT_EQ(sampled.drafts->num_sequences(), plain.drafts->num_sequences());
  }
  EXPECT_GT(num_sampled, 400u);
}

// Drafts that the same plan verifies stay pending; the draft model has their
// tokens when it drafts again.
TEST(DraftSamplerTest, PendingDraftsAreThoseOfTheHost) {
  int num_pending = 0;
  int64_t num_rows = 0;
  int64_t num_plain_rows = 0;
  for (int seed = 0; seed < Cases(60, 20); ++seed) {
    SCOPED_TRACE(seed);
    GrowingTexts texts(seed, 11);
    SampledModel plain(false, 400);
    SampledModel sampled(true, 400);
    for (int step = 0; step < 12; ++step) {
      StepPlan plan = texts.Plan();
      const std::vector<DraftedTokens> expected = plain.Run(plan);
      for (DraftSequence& sequence : plan.drafting) {
        if (sequence.search == nullptr) sequence.verified_by = {0, 0, 0};
      }
      auto actual = sampled.drafts->Run(plan, /*may_pend=*/true);
      ASSERT_OK(actual.status());
      num_plain_rows += plain.drafts->num_rows();
      num_rows += sampled.drafts->num_rows();
      for (size_t i = 0; i < expected.size(); ++i) {
        DraftedTokens& draft = (*actual)[i];
        ASSERT_EQ(draft.is_behind, expected[i].is_behind);
        if (!draft.pending.empty()) {
          ++num_pending;
          const SelectionParams& params = *plan.drafting[i].params;
          ASSERT_EQ(std::ssize(draft.tokens), draft.pending.num_tokens());
          draft.pending.EndAt(params.processors.eos_token_ids,
                              NeedsDraftLogits(params));
          ASSERT_OK(sampled.sampler->Wait().status());
          draft.tokens = draft.pending.Tokens();
        }
        ASSERT_EQ(draft.tokens, expected[i].tokens);
        const auto logits = expected[i].logits.values();
        ASSERT_TRUE(std::ranges::equal(
            draft.logits.values().first(logits.size()), logits));
      }
      texts.Grow(expected);
    }
    EXPECT_EQ(sampled.drafts->num_sequences(), plain.drafts->num_sequences());
  }
  EXPECT_GT(num_pending, 400);
  EXPECT_GT(num_rows, num_plain_rows / 2);
}

// A sequence without pages for all of its draft gets none, and the others are
// not affected.
TEST(DraftSamplerTest, WithoutPagesThereIsNoDraft) {
  int num_without = 0;
  int num_drafted = 0;
  for (int seed = 0; seed < Cases(60, 20); ++seed) {
    SCOPED_TRACE(seed);
    GrowingTexts texts(seed, 11);
    SampledModel plain(false, 400);
    SampledModel sampled(true, 24);
    for (int step = 0; step < 12; ++step) {
      const StepPlan plan = texts.Plan();
      const std::vector<DraftedTokens> expected = plain.Run(plan);
      const std::vector<DraftedTokens> actual = sampled.Run(plan);
      for (size_t i = 0; i < expected.size(); ++i) {
        const bool is_sampled = sampled.sampler->DrawsFor(plan.drafting[i]);
        if (!is_sampled || actual[i].tokens == expected[i].tokens) {
          num_drafted += !actual[i].tokens.empty();
          continue;
        }
        ASSERT_TRUE(actual[i].tokens.empty() || expected[i].is_behind ||
                    actual[i].is_behind);
        ++num_without;
      }
      texts.Grow(expected);
    }
  }
  EXPECT_GT(num_without, 10);
  EXPECT_GT(num_drafted, 10);
}

// The sampler fails, at the next run or in the same one.
TEST(DraftSamplerTest, DraftsThatFailAreNotInWhatDraftsCost) {
  auto params = std::make_shared<SelectionParams>();
  params->sampling.temperature = 1;
  StepPlan plan;
  const auto ask = [&](int request, int count) {
    plan.drafting.push_back({.request = RequestId{request},
                             .prompt = std::make_shared<std::vector<TokenId>>(
                                 20, TokenId{3 + request}),
                             .generated = {1},
                             .num_tokens = count,
                             .params = params,
                             .verified_by = {0, 0, 0}});
  };
  ask(0, 3);
  ask(1, 3);
  const absl::Status error = absl::DataLossError("lost");
  SampledModel sampled(true, 400);
  const auto run = [&plan](SampledModel& model) {
    return model.drafts->Run(plan, /*may_pend=*/true).status();
  };
  ASSERT_OK(run(sampled));
  sampled.sampler->next_wait = error;
  EXPECT_EQ(run(sampled), error);
  ASSERT_OK(run(sampled));
  EXPECT_EQ(sampled.drafts->num_rows(), 0);
  ASSERT_OK(run(sampled));
  EXPECT_EQ(sampled.drafts->num_rows(), 3 + 3);
  // The host drafts for one more sequence, and waits for the pending drafts to
  // do so. Its first pass catches up.
  SampledModel mixed(true, 400);
  ask(2, 4);
  mixed.sampler->next_wait = error;
  EXPECT_EQ(run(mixed), error);
  ASSERT_OK(run(mixed));
  EXPECT_EQ(mixed.drafts->num_rows(), 3);
}

// Each sampled token counts one row, whether the host or the sampler draws it.
// In a catch-up pass only the sampler's tokens count: it has fed the missing
// ones before.
TEST(DraftSamplerTest, RowsOfLogitsAreCounted) {
  auto params = std::make_shared<SelectionParams>();
  params->sampling.temperature = 1;
  StepPlan plan;
  const auto ask = [&](int request, std::vector<TokenId> generated, int count) {
    plan.drafting.push_back({.request = RequestId{request},
                             .prompt = std::make_shared<std::vector<TokenId>>(
                                 20, TokenId{3 + request}),
                             .generated = std::move(generated),
                             .num_tokens = count,
                             .params = params});
  };
  ask(0, {1}, 1);
  ask(1, {1}, 3);
  ask(2, {1}, 3);
  SampledModel plain(false, 400);
  SampledModel sampled(true, 400);
  plain.Run(plan);
  sampled.Run(plan);
  EXPECT_EQ(plain.drafts->num_rows(), 1 + 3 + 3 - 3);
  EXPECT_EQ(sampled.drafts->num_rows(), 1 + 3 + 3);

  // Nothing is missing.
  plain.Run(plan);
  sampled.Run(plan);
  EXPECT_EQ(plain.drafts->num_rows(), 1 + 3 + 3);
  EXPECT_EQ(sampled.drafts->num_rows(), 1 + 3 + 3);

  // One catches up.
  ask(3, {1}, 2);
  plain.Run(plan);
  sampled.Run(plan);
  EXPECT_EQ(plain.drafts->num_rows(), 1 + 3 + 3 + 2 - 4);
  EXPECT_EQ(sampled.drafts->num_rows(), 1 + 3 + 3 + 2);
  EXPECT_EQ(sampled.sampler->num_sampled, 3u + 3u + 4u);
}

}  // namespace
}  // namespace espalier::testing
