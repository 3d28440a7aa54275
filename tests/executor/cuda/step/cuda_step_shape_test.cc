// The law of device scratch: whatever mixture of requests the limits allow, no
// two groups of a step write to the same place, and what kernels index lies
// inside what there is; in graphs and without.
#include "executor/cuda/step/cuda_step_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/batch/cuda_step_limits.h"
#include "executor/cuda/step/cuda_step_builder.h"
#include "tests/few_cases.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::testing::HasSubstr;
using ::testing::Not;

CudaGroup GroupAt(int first_slot, int num_slots) {
  CudaGroup group;
  group.first_slot = first_slot;
  group.num_slots = num_slots;
  return group;
}

// A step of requests of every kind, as wide and as many as limits allow.
class AnyStep {
 public:
  explicit AnyStep(uint32_t seed) : random_(seed) {
    const int max_rows = OneOf({1, 7, 64, 300, 2048});
    const ModelDescription model = {.vocab_size = OneOf({40, 1500, 6000}),
                                    .max_context = 512,
                                    .eos_token_ids = {2},
                                    .num_pages = 4000};
    limits_ = StepLimitsOf(model, {.max_tokens = max_rows + Below(500),
                                   .max_logits = max_rows,
                                   .max_attention_items = 8192,
                                   .max_attention_partials = 16384});
    batch_shape_ = {.vocab_size = model.vocab_size,
                    .page_size = model.page_size,
                    .max_positions = 512,
                    .max_edits = limits_.max_edits};
  }

  const CudaStepLimits& limits() const { return limits_; }

  CudaInputBatch Make() {
    CudaInputBatch batch(batch_shape_);
    num_slots_ = 0;
    for (int i = Below(12); i > 0; --i) AddRequest(&batch);
    if (Below(2) == 0) {
      batch.Pad(std::max(1, AnyPadded(batch.num_rows)), limits_.num_slots);
      for (int i = Below(12); i > 0; --i) {
        Below(4) == 0 ? AddPrompt(&batch, 1) : AddDrafted(&batch);
      }
      if (batch.prompt_tokens.empty() || !IsReplayable(batch)) {
        batch.PlaceDraftRows(NumDraftRows(batch));
        return batch;
      }
      batch.PadPrompts(AnyPadded(batch.num_tokens() + NumDraftRows(batch)) -
                           NumDraftRows(batch),
                       limits_.num_slots);
      const int room = limits_.max_rows - batch.num_logits_rows();
      batch.PlaceDraftRows(PaddedDraftRows(NumDraftRows(batch), room));
      return batch;
    }
    for (int i = Below(12); i > 0; --i) AddPrompt(&batch, 3);
    return batch;
  }

 private:
  int Below(int limit) { return static_cast<int>(random_() % limit); }
  int OneOf(std::initializer_list<int> values) {
    return values.begin()[Below(static_cast<int>(values.size()))];
  }

  static int NumDraftRows(const CudaInputBatch& batch) {
    return batch.verified.num_draft_rows();
  }

  // From `count` on.
  int AnyPadded(int count) {
    const int most = std::min(limits_.max_rows, count + 8);
    return count + Below(most - count + 1);
  }

  // Returns a width that fits beside the present groups; 0: none does.
  int AnyWidth(const CudaInputBatch& batch) {
    const int left =
        limits_.max_rows - std::max(batch.num_logits_rows(), num_slots_);
    if (left < 1) return 0;
    return 1 + Below(std::min(left, OneOf({4, 40, 130, 600})));
  }

  SelectionParams AnyParams() {
    SelectionParams params;
    params.num_logprobs = Below(3) == 0 ? Below(65) : -1;
    if (Below(3) == 0) params.processors.suppress_tokens = {3, 5};
    if (Below(5) == 0) params.processors.no_repeat_ngram_size = 2;
    return params;
  }

  struct Asked {
    SelectionKind kind = SelectionKind::kBeams;
    bool gumbel_top_k = false;
    SelectionParams params;
    CudaGroup group;
    int num_candidates = 1;
    std::vector<int> slots = {};
    std::vector<int> samples = {};

    CudaGroupRequest request() const {
      return {.kind = kind,
              .num_candidates = num_candidates,
              .gumbel_top_k = gumbel_top_k,
              .params = &params,
              .slots = slots,
              .samples = samples};
    }
  };

  // False if its candidates do not fit.
  bool Ask(const CudaInputBatch& batch, int width, int num_logits_rows,
           Asked* asked) {
    asked->kind = static_cast<SelectionKind>(Below(3));
    asked->gumbel_top_k = asked->kind == SelectionKind::kRows && Below(2) == 0;
    asked->params = AnyParams();
    asked->group = GroupAt(num_slots_, width);
    asked->group.position = 5 + Below(100);
    asked->group.eos_token_ids.resize(1 + Below(4), 2);
    asked->num_candidates =
        (1 + static_cast<int>(asked->group.eos_token_ids.size())) * width;
    asked->slots.resize(width);
    std::iota(asked->slots.begin(), asked->slots.end(), 0);
    if (asked->kind == SelectionKind::kDraws) {
      asked->samples = asked->slots;
    }
    const int64_t count =
        asked->kind == SelectionKind::kRows
            ? int64_t{num_logits_rows} *
                  std::min(asked->num_candidates, batch_shape_.vocab_size)
            : asked->num_candidates;
    return batch.num_candidates + count <= limits_.max_candidates;
  }

  void AddRequest(CudaInputBatch* batch) {
    const int width = AnyWidth(*batch);
    Asked asked;
    if (width == 0 || !Ask(*batch, width, width, &asked)) return;
    batch->AddBeams(asked.group, asked.request());
    num_slots_ += width;
  }

  // One row of logits, of which all beams or samples come.
  void AddPrompt(CudaInputBatch* batch, int num_tokens) {
    if (batch->num_tokens() + 3 > limits_.max_tokens ||
        batch->num_logits_rows() + NumDraftRows(*batch) + 3 >
            limits_.max_rows) {
      return;
    }
    const std::vector<TokenId> tokens(num_tokens, 7);
    const int last = batch->AddPrompt(tokens, 0, num_slots_);
    if (Below(5) == 0) return;
    const int width = AnyWidth(*batch);
    Asked asked;
    if (width == 0 || !Ask(*batch, width, 1, &asked)) return;
    if (batch->num_draws() + width > limits_.max_rows) return;
    const float cum = 0;
    batch->AddPromptLogitsRows(asked.group, asked.request(), {&last, 1},
                               {&cum, 1});
    num_slots_ += width;
  }

  // A sample's row of three tokens, each of which draws.
  void AddDrafted(CudaInputBatch* batch) {
    constexpr int kNumTokens = 3;
    Asked asked;
    const int num_rows = batch->num_tokens() + NumDraftRows(*batch);
    if (num_rows + 2 * kNumTokens > limits_.max_rows ||
        batch->num_draws() + kNumTokens > limits_.max_rows ||
        num_slots_ == limits_.max_rows ||
        !Ask(*batch, kNumTokens, kNumTokens, &asked)) {
      return;
    }
    asked.kind = SelectionKind::kDraws;
    asked.gumbel_top_k = false;
    const int last =
        batch->AddPrompt(std::vector<TokenId>(kNumTokens, 7), 5, num_slots_++);
    std::vector<SelectionRow> logits_rows;
    std::vector<int> tokens;
    for (int i = 0; i < kNumTokens; ++i) {
      logits_rows.push_back(
          {.draft_idx = i,
           .num_generated = 3 + i,
           .text = std::make_shared<std::vector<TokenId>>(4 + i, 7),
           .num_history = 4 + i});
      tokens.push_back(last + 1 - kNumTokens + i);
    }
    CudaGroupRequest request = asked.request();
    request.logits_rows = logits_rows;
    const std::vector<std::vector<TokenId>> drafts = {
        std::vector<TokenId>(kNumTokens - 1, 7)};
    if (Below(2) == 0) {
      request.drafts = drafts;
      request.has_draft_rows = Below(2) == 0;
    }
    const float zeros[kNumTokens] = {};
    batch->AddPromptLogitsRows(asked.group, request, tokens, zeros);
  }

  std::mt19937 random_;
  CudaStepLimits limits_;
  CudaInputBatch::Shape batch_shape_;
  int num_slots_ = 0;
};

TEST(CudaStepShapeTest, WhatKernelsIndexIsTheirsInEveryMixture) {
  int num_wide_beside_draws = 0, num_wide_perturbed = 0, num_graphs = 0,
      num_with_drafts = 0, num_verified = 0;
  for (int seed = 0; seed < Cases(6000, 600); ++seed) {
    AnyStep any(seed);
    const CudaInputBatch batch = any.Make();
    const CudaStepShape shape = ShapeOf(batch, 0);
    if (shape.num_logits_rows == 0) continue;
    ASSERT_EQ(ScratchFault(batch, shape, any.limits()), "") << "seed " << seed;
    const bool wide = shape.max_candidates > kMaxNarrowCudaSelect;
    num_wide_beside_draws += wide && shape.max_draws > 0;
    num_wide_perturbed += shape.max_gumbel_top_k > kMaxNarrowCudaSelect;
    if (!IsReplayable(batch)) continue;
    ++num_graphs;
    num_with_drafts += !batch.prompt_tokens.empty();
    num_verified += batch.num_verified() > 0;
    ASSERT_EQ(
        ScratchFault(batch, GraphShape(shape, any.limits()), any.limits()), "")
        << "seed " << seed;
  }
  EXPECT_GT(num_wide_beside_draws, Cases(500, 50));
  EXPECT_GT(num_wide_perturbed, Cases(500, 50));
  EXPECT_GT(num_graphs, Cases(500, 50));
  EXPECT_GT(num_with_drafts, Cases(500, 50));
  EXPECT_GT(num_verified, Cases(200, 20));
}

// Two groups of 40 and 64 beams after 300 samples.
CudaInputBatch WideBesideSamples() {
  CudaInputBatch batch({.vocab_size = 1500, .max_positions = 512});
  SelectionParams params;
  batch.AddBeams(GroupAt(0, 300),
                 {.kind = SelectionKind::kDraws, .params = &params});
  batch.AddBeams(GroupAt(300, 40), {.num_candidates = 80, .params = &params});
  batch.AddBeams(GroupAt(340, 64), {.num_candidates = 128, .params = &params});
  return batch;
}

CudaStepLimits SmallLimits() {
  CudaStepLimits limits;
  limits.max_rows = 512;
  limits.max_tokens = 512;
  limits.max_candidates = 512;
  limits.max_eos_token_ids = 512;
  return limits;
}

TEST(CudaStepShapeTest, ScratchThatIsTooSmallIsSeen) {
  const CudaInputBatch batch = WideBesideSamples();
  const CudaStepShape shape = ShapeOf(batch, 0);
  CudaStepLimits limits = SmallLimits();
  EXPECT_EQ(ScratchFault(batch, shape, limits), "");
  limits.max_candidates = 507;
  EXPECT_THAT(ScratchFault(batch, shape, limits), HasSubstr("candidates"));
  limits = SmallLimits();
  limits.max_rows = 403;
  EXPECT_THAT(ScratchFault(batch, shape, limits), Not(""));
}

TEST(CudaStepShapeTest, GroupsInOnePlaceAreSeen) {
  CudaInputBatch batch = WideBesideSamples();
  const CudaStepShape shape = ShapeOf(batch, 0);
  batch.selections[2].first_candidate -= 1;
  EXPECT_THAT(ScratchFault(batch, shape, SmallLimits()),
              HasSubstr("overlaps candidates"));
  CudaInputBatch other = WideBesideSamples();
  other.selections[2].first_row -= 1;
  EXPECT_THAT(ScratchFault(other, shape, SmallLimits()),
              HasSubstr("overlaps maxima"));
}

// Draws four samples from the single row of logits of a prompt, after two
// samples.
CudaInputBatch DrawsOfPrompt() {
  CudaInputBatch batch({.vocab_size = 1500, .max_positions = 512});
  const SelectionParams params;
  batch.AddBeams(GroupAt(0, 2),
                 {.kind = SelectionKind::kDraws, .params = &params});
  const std::vector<TokenId> tokens(3, 7);
  const int last = batch.AddPrompt(tokens, 0, 2);
  const std::vector<int> samples = {0, 1, 2, 3};
  const float cum = 0;
  batch.AddPromptLogitsRows(GroupAt(2, 4),
                            {.kind = SelectionKind::kDraws,
                             .params = &params,
                             .slots = samples,
                             .samples = samples},
                            {&last, 1}, {&cum, 1});
  return batch;
}

TEST(CudaStepShapeTest, DrawsOfOtherRowsOrIntoOtherPlacesAreSeen) {
  const auto fault = [&](size_t draw, int row, int candidate) {
    CudaInputBatch batch = DrawsOfPrompt();
    EXPECT_EQ(batch.prompt_draws.size(), 4u);
    batch.prompt_draws[draw].row += row;
    batch.prompt_draws[draw].candidate += candidate;
    return ScratchFault(batch, ShapeOf(batch, 0), SmallLimits());
  };
  EXPECT_EQ(fault(3, 0, 0), "");
  EXPECT_THAT(fault(3, 1, 0), HasSubstr("a draw from row 3 of 3"));
  EXPECT_THAT(fault(0, -1, 0), HasSubstr("of group 0"));
  EXPECT_THAT(fault(0, 0, -1), HasSubstr("draw -1 of 4 of group 1"));
  EXPECT_THAT(fault(3, 0, 1), HasSubstr("draw 4 of 4 of group 1"));
  EXPECT_THAT(fault(2, 0, 1), HasSubstr("overlaps candidates drawn"));
}

// Sized by the groups that are selected for, as scratch once was, the entries
// of these groups would lie after their part.
TEST(CudaStepShapeTest, CandidatesOfAllGroupsSizeWideSelection) {
  const CudaInputBatch batch = WideBesideSamples();
  const CudaSelectBounds bounds = {.num_rows = batch.num_logits_rows(),
                                   .vocab_size = 1500,
                                   .max_groups = 3,
                                   .max_candidates = 128,
                                   .max_total_candidates = 3 * 128};
  const CudaSelectLayout layout(bounds);
  LayoutAudit audit;
  layout.AuditGroup({.group_idx = 2,
                     .first_row = 340,
                     .num_rows = 64,
                     .num_candidates = 128,
                     .first_candidate = batch.selections[2].first_candidate},
                    &audit);
  EXPECT_EQ(audit.fault(), "items [1520, 2032) of entries, which has 1536");
}

}  // namespace
}  // namespace espalier
