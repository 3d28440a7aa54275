// Steps built from plans, some of which have no room for some requests. Needs
// no device.
#include "executor/cuda/step/cuda_step_builder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "tests/executor/cuda/step_builder_fixture.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

class CudaStepBuilderTest : public StepBuilderFixture {
 protected:
  CudaStepBuilderTest()
      : StepBuilderFixture(kBuilderLimits, kBuilderPageSize) {}

  // A prompt of three tokens before beams.
  template <typename Choice = BeamSelection>
  void AddPrompt(int request, Choice choice = {.num_candidates = 4}) {
    const TokenId tokens[] = {5, 6, 7};
    source_.AddRow(tokens, 3);
    source_
        .AddSelection(RequestId{request}, 1, 2, PlanSelection::DefaultParams())
        .choice = std::move(choice);
  }
  // A beam that feeds one token.
  PlanSelection& AddBeam(int request) {
    source_.AddRow(std::vector<TokenId>{8}, 1);
    PlanSelection& beam = source_.AddSelection(RequestId{request}, 1, 1,
                                               PlanSelection::DefaultParams());
    beam.choice = BeamSelection{.num_candidates = 4};
    return beam;
  }
  // A beam that is ranked with noise, and feeds one token.
  void AddDrawnBeam(int request) { AddBeam(request).choice = kDrawnBeams; }

  static inline const RowSelection kDrawnBeams = {.num_candidates = 4,
                                                  .gumbel_top_k = true};
  // Scores the prompt that was added last.
  void ScorePrompt(int request) {
    source_.plan.scorings.push_back(
        {.request = RequestId{request},
         .first_logits = source_.plan.num_logits - 3,
         .tokens = {6, 7}});
  }

  absl::StatusOr<CudaStep> Build(const absl::Status& gumbel_status) {
    CudaDelta delta(memory_->words());
    auto step = builder_->Build(source_.Take(), gumbel_status, &delta);
    for (const CudaStagedWrite& write : delta.segments()) {
      for (int i = 0; i < write.count; ++i) {
        sent_[write.target + i] = delta.payload()[write.source + i];
      }
    }
    return step;
  }

  // Returns the values that the steps so far have sent to `target`; 0 where
  // nothing was written.
  std::vector<uint64_t> Sent(const uint64_t* target, int count) {
    std::vector<uint64_t> values(count);
    auto* const words = reinterpret_cast<int*>(values.data());
    const int first = static_cast<int>(reinterpret_cast<const int*>(target) -
                                       memory_->words());
    for (int i = 0; i < 2 * count; ++i) {
      const auto word = sent_.find(first + i);
      if (word != sent_.end()) words[i] = word->second;
    }
    return values;
  }

 private:
  std::map<int, int> sent_;  // by word
};

// Needs more tables than rows without a group have.
TEST_F(CudaStepBuilderTest, NoRoomToDrawBeamsEndsThoseRequestsAlone) {
  const int num_drawn = memory_->num_row_tables() + 1;
  for (int i = 0; i < num_drawn; ++i) AddPrompt(i, kDrawnBeams);
  ScorePrompt(num_drawn - 1);
  for (int i = 0; i < memory_->num_row_tables(); ++i) {
    source_.AddRow(std::vector<TokenId>{8}, 0);
  }
  AddPrompt(num_drawn);
  const absl::Status none = absl::ResourceExhaustedError("no scratch");
  const absl::StatusOr<CudaStep> step = Build(none);
  ASSERT_OK(step.status());
  ASSERT_EQ(step->answers.size(), static_cast<size_t>(num_drawn) + 1);
  for (int i = 0; i < num_drawn; ++i) {
    EXPECT_EQ(step->answers[i].error, none);
    EXPECT_TRUE(step->answers[i].parts.empty());
  }
  EXPECT_OK(step->answers.back().error);
  EXPECT_EQ(step->answers.back().parts.size(), 1u);
  EXPECT_EQ(step->shape.max_gumbel_top_k, 0);
  EXPECT_EQ(step->scorings[0].tokens.size(), 2u);
}

// Their slots are free again: as many come in each step as one has room for.
TEST_F(CudaStepBuilderTest, RequestsThatCannotDrawKeepNoSlots) {
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 100; ++i) AddDrawnBeam(100 * step + i);
    EXPECT_OK(Build(absl::ResourceExhaustedError("no scratch")).status());
  }
}

// With room, the same steps draw.
TEST_F(CudaStepBuilderTest, RequestsThatCanDrawAreAnswered) {
  for (int i = 0; i < 100; ++i) AddDrawnBeam(i);
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_EQ(step->shape.max_gumbel_top_k, 4);
  EXPECT_EQ(step->answers[99].parts.size(), 1u);
}

// Samples that have generated three tokens and feed drafts, of four at most.
class CudaStepBuilderDraftsTest : public CudaStepBuilderTest {
 protected:
  PlanSelection& AddDrafted(int request, int num_samples,
                            ScoreProcessors processors, int num_drafts = 4) {
    std::vector<TokenId> tokens = {4, 5, 6, 7, 8};
    tokens.resize(1 + num_drafts);
    for (int i = 0; i < num_samples; ++i) {
      source_.AddRow(tokens, 1 + num_drafts);
    }
    auto params = std::make_shared<SelectionParams>();
    params->processors = std::move(processors);
    PlanSelection& selection = source_.AddSelection(
        RequestId{request}, num_samples, num_samples, std::move(params));
    selection.first_logits =
        source_.plan.num_logits - (1 + num_drafts) * num_samples;
    selection.num_generated = 3;
    DrawSelection& draws = selection.Choose<DrawSelection>();
    draws.row_num_generated.assign(num_samples, 3);
    for (int i = 0; i < num_samples; ++i) {
      draws.samples.push_back(i);
      draws.drafts.tokens.emplace_back(tokens.begin() + 1, tokens.end());
      if (!selection.params->processors.needs_history()) continue;
      selection.histories.push_back({2, 3, 4});
    }
    return selection;
  }
  // Adds the draft model's logits of the drafts.
  void AddDraftLogits(PlanSelection* selection) {
    SampleDrafts& drafts = selection->Choose<DrawSelection>().drafts;
    for (const auto& draft : drafts.tokens) {
      drafts.logits.push_back(
          DraftLogits(std::vector<float>(draft.size() * kVocabSize)));
    }
    drafts.max_tokens = 4;
  }
};

TEST_F(CudaStepBuilderDraftsTest, EveryRowOfADraftDraws) {
  AddDrafted(0, 2, {});
  AddDrafted(1, 3, {});
  AddPrompt(2);
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_FALSE(step->is_replayable);
  EXPECT_EQ(step->shape.num_verify_rows, 26);
  EXPECT_EQ(step->shape.max_verified, 5);
  EXPECT_EQ(step->shape.num_logits_rows, 26);
  EXPECT_EQ(step->answers[0].logits_rows.size(), 10u);
  EXPECT_EQ(step->answers[1].logits_rows.size(), 15u);
}

// So one graph serves any such step of as many tokens or a few more.
TEST_F(CudaStepBuilderDraftsTest, StepsThatVerifyArePaddedToTheShapesOfGraphs) {
  for (const int num_samples : {4, 5, 6}) {  // 21 to 31 tokens
    AddDrafted(num_samples, num_samples, {});
    AddBeam(100 + num_samples).num_generated = 1;
    const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
    ASSERT_OK(step.status());
    EXPECT_TRUE(step->is_replayable);
    EXPECT_EQ(step->shape.num_rows, 1);
    EXPECT_EQ(step->shape.num_tokens, num_samples == 4 ? 24 : 32);
    EXPECT_EQ(step->shape.num_logits_rows, step->shape.num_tokens);
    EXPECT_EQ(step->shape.max_verified, num_samples);
  }
}

// The prompt has one token. The samples need more draws than a graph of its
// single row has.
TEST_F(CudaStepBuilderDraftsTest, ManySamplesOfOneRowTakeNoGraph) {
  source_.AddRow(std::vector<TokenId>{8}, 1);
  source_.AddSelection(RequestId{0}, 1, 4, PlanSelection::DefaultParams())
      .choice = DrawSelection{.samples = {0, 1, 2, 3}};
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_FALSE(step->is_replayable);
  EXPECT_EQ(step->shape.max_draws, 4);
}

// Three beams are padded to four rows, ahead of the tokens of drafts.
TEST_F(CudaStepBuilderDraftsTest, BeamsBesideDraftsArePadded) {
  AddDrafted(0, 1, {});
  for (int i = 0; i < 3; ++i) source_.AddRow(std::vector<TokenId>{8}, 1);
  PlanSelection& beams =
      source_.AddSelection(RequestId{1}, 3, 3, PlanSelection::DefaultParams());
  beams.num_generated = 1;
  beams.choice = BeamSelection{.num_candidates = 6};
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_TRUE(step->is_replayable);
  EXPECT_EQ(step->shape.num_rows, 4);
  EXPECT_EQ(step->shape.num_tokens, 16);
}

// A step is not padded if padding takes rows of logits from drafts.
TEST_F(CudaStepBuilderDraftsTest, PaddingTakesNoRoomFromDrafts) {
  AddDrafted(0, 10, {});
  for (int i = 0; i < 78; ++i) {  // 96, padded
    AddBeam(1 + i).num_generated = 1;
  }
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_FALSE(step->is_replayable);
  EXPECT_EQ(step->shape.num_logits_rows, 128);
  EXPECT_EQ(step->answers[0].logits_rows.size(), 50u);
}

// After all logits_rows, padded as these are: three samples are 15
// logits_rows, 12 drafts.
TEST_F(CudaStepBuilderDraftsTest,
       RowsThatDraftsWereDrawnFromComeAfterAllOthers) {
  AddDrafted(0, 2, {});
  AddDraftLogits(&AddDrafted(1, 3, {}));
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_TRUE(step->is_replayable);
  EXPECT_EQ(step->shape.num_logits_rows, 32);
  ASSERT_EQ(step->draft_rows.size(), 3u);
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(step->draft_rows[row].first_row, 32 + 4 * row);
    EXPECT_EQ(step->draft_rows[row].logits.size(), 4'000u);
  }
  EXPECT_EQ(step->shape.num_verify_rows, 32 + 16);
  EXPECT_EQ(step->shape.max_verified, 5);
  EXPECT_TRUE(step->shape.verifies_draft_rows);
  EXPECT_FALSE(step->shape.verifies_filtered);
  EXPECT_EQ(step->shape.max_draws, 0);  // none is plain
}

// Logits on the step's device are read in place; logits of another device or of
// the host are copied into the rows after all others.
TEST_F(CudaStepBuilderDraftsTest, RowsOnTheDeviceAreReadWhereTheyAre) {
  const std::vector<float> memory(2 * 4 * kVocabSize);
  const auto on_device = [&](size_t first, int ordinal) {
    return DraftLogits({std::make_shared<int>(), memory.data() + first},
                       4 * kVocabSize, ordinal);
  };
  PlanSelection& selection = AddDrafted(0, 4, {});
  AddDraftLogits(&selection);
  std::vector<DraftLogits>& logits = selection.EditDraws().drafts.logits;
  logits[1] = on_device(0, 0);
  logits[2] = on_device(0, 1);
  logits[3] = on_device(4 * kVocabSize, 0);
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  ASSERT_EQ(step->draft_rows.size(), 4u);  // held, all of them
  const int first = step->draft_rows[0].first_row;
  std::vector<uint64_t> expected(first + 16);
  for (const int row : {1, 3}) {
    for (int i = 0; i < 4; ++i) {
      expected[first + 4 * row + i] = reinterpret_cast<uintptr_t>(
          step->draft_rows[row].logits.data() + i * kVocabSize);
    }
  }
  const uint64_t* const addresses = memory_->arrays().verify_row_addresses;
  EXPECT_EQ(Sent(addresses, first + 16), expected);
  // A later step has other rows there.
  AddDraftLogits(&AddDrafted(1, 4, {}));
  ASSERT_OK(Build(absl::OkStatus()).status());
  EXPECT_EQ(Sent(addresses, first + 16), std::vector<uint64_t>(first + 16));
}

// With rejection, the tokens are also written to the verification's input.
TEST_F(CudaStepBuilderDraftsTest, DraftsThatAreDrawnMeanwhileHaveTheirPlaces) {
  const auto tokens = std::make_shared<const std::vector<TokenId>>(99, 5);
  auto coupled = std::make_shared<SelectionParams>();
  coupled->verify_mode = VerifyMode::kCoupled;
  for (const bool is_coupled : {false, true}) {
    AddPrompt(9);
    const int first = std::ssize(source_.plan.tokens);
    AddDrafted(0, 1, {});
    PlanSelection& selection = AddDrafted(1, 3, {});
    if (is_coupled) selection.params = coupled;
    std::vector<PendingDraft>& pending = selection.EditDraws().drafts.pending;
    pending.resize(3);
    for (const int row : {0, 2}) {
      pending[row] = PendingDraft({tokens, tokens->data() + row}, 10, 4);
    }
    const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
    ASSERT_OK(step.status());
    ASSERT_EQ(step->placed_drafts.size(), 2u);
    for (const int i : {0, 1}) {
      const CudaStep::PlacedDraft& placed = step->placed_drafts[i];
      EXPECT_EQ(placed.draft.tokens(), tokens->data() + 2 * i);
      EXPECT_EQ(placed.first_token, first + 5 * (1 + 2 * i) + 1);
      EXPECT_EQ(placed.first_draft, is_coupled ? -1 : 4 * (1 + 2 * i));
    }
  }
}

// So have rows that begin where verification ends; nothing is known of their
// places in pages, nor of where attention ends.
TEST_F(CudaStepBuilderDraftsTest, RowsThatDoNotWaitHaveTheirPlaces) {
  const auto tokens = std::make_shared<const std::vector<TokenId>>(99, 5);
  VerifiedDraft verified[3];
  auto coupled = std::make_shared<SelectionParams>();
  coupled->verify_mode = VerifyMode::kCoupled;
  for (const bool is_coupled : {false, true}) {
    const int first = std::ssize(source_.plan.tokens);
    AddDrafted(0, 1, {});
    PlanSelection& selection = AddDrafted(1, 3, {});
    if (is_coupled) selection.params = coupled;
    for (int row = 0; row < 3; ++row) {
      const PendingDraft draft({tokens, tokens->data()}, 10, 4, &verified[row]);
      SampleDrafts& drafts = selection.EditDraws().drafts;
      drafts.pending.push_back(draft);
      drafts.verified_before.push_back(draft);
    }
    const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
    ASSERT_OK(step.status());
    ASSERT_EQ(step->unread_rows.size(), 3u);
    const int first_candidate = step->answers[1].parts[0].first_candidate;
    for (int i = 0; i < 3; ++i) {
      const CudaStep::UnreadRow& row = step->unread_rows[i];
      EXPECT_EQ(row.before.verified(), &verified[i]);
      EXPECT_EQ(row.first_token, first + 5 * (1 + i));
      EXPECT_EQ(row.num_tokens, 5);
      EXPECT_EQ(row.num_draws, 5);
      EXPECT_EQ(row.first_draw, 5 * (1 + i));
      EXPECT_EQ(row.verify_sequence, is_coupled ? -1 : 1 + i);
      EXPECT_EQ(step->placed_drafts[i].first_candidate,
                first_candidate + 5 * i);
      EXPECT_EQ(step->placed_drafts[i].num_verified, 4);
    }
  }
}

// Greedy and coupled drafts are verified by plain draws.
TEST_F(CudaStepBuilderDraftsTest, WhatTakesNoChanceIsDrawn) {
  PlanSelection& coupled = AddDrafted(0, 2, {});
  auto params = std::make_shared<SelectionParams>(*coupled.params);
  params->verify_mode = VerifyMode::kCoupled;
  coupled.params = params;
  PlanSelection& greedy = AddDrafted(1, 1, {});
  params = std::make_shared<SelectionParams>(*greedy.params);
  params->sampling.temperature = 0;
  greedy.params = params;
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_EQ(step->shape.max_verified, 0);
  EXPECT_EQ(step->shape.num_verify_rows, 0);
  EXPECT_EQ(step->shape.max_draws, 15);
}

// 65 logits_rows have room, and 52 rows of drafts have not: there are 128.
TEST_F(CudaStepBuilderDraftsTest, WithoutRoomForTheirRowsDraftsAreNotVerified) {
  AddDraftLogits(&AddDrafted(0, 2, {}));
  AddDraftLogits(&AddDrafted(1, 13, {}));
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_FALSE(step->is_replayable);
  EXPECT_EQ(step->answers[0].logits_rows.size(), 10u);
  EXPECT_EQ(step->answers[1].logits_rows.size(), 13u);
  EXPECT_EQ(step->shape.max_verified, 2);
  EXPECT_EQ(step->shape.num_verify_rows, 23 + 8);
  EXPECT_EQ(step->draft_rows.size(), 2u);
}

// The decision to verify must not depend on the sampled tokens: drafts that end
// at once get no more room than others.
TEST_F(CudaStepBuilderDraftsTest, ShortDraftsHaveNoMoreRoomThanLongOnes) {
  AddDraftLogits(&AddDrafted(0, 2, {}));
  AddDraftLogits(&AddDrafted(1, 13, {}, /*num_drafts=*/1));
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_EQ(step->answers[0].logits_rows.size(), 10u);
  EXPECT_EQ(step->answers[1].logits_rows.size(), 13u);
}

// 100 samples are 100 rows of logits; of 400 drafts 28 have room.
TEST_F(CudaStepBuilderDraftsTest, DraftsHaveTheRowsOfLogitsThatAreLeft) {
  AddDrafted(0, 10, {});
  AddDrafted(1, 7, {});
  for (int i = 0; i < 82; ++i) AddBeam(2 + i);
  AddPrompt(99);
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_EQ(step->shape.num_logits_rows, 100 + 28);
  EXPECT_EQ(step->answers[0].logits_rows.size(), 10u);
  EXPECT_EQ(step->answers[1].logits_rows.size(), 35u);
}

// There is room for one edit: none for those that drafts would need.
TEST_F(CudaStepBuilderDraftsTest, DraftsHaveTheEditsThatAreLeft) {
  ScoreProcessors bans;
  bans.suppress_tokens = {9};
  AddDrafted(0, 1, bans);
  AddDrafted(1, 1, {});
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_EQ(step->answers[0].logits_rows.size(), 1u);
  EXPECT_EQ(step->answers[1].logits_rows.size(), 5u);
}

// Beams that feed paths: `num_beams` of them, each with two paths of two
// tokens.
class CudaStepBuilderPathsTest : public CudaStepBuilderTest {
 protected:
  PlanSelection& AddBeams(int request, int num_beams, int num_candidates) {
    for (int i = 0; i < 2 * num_beams; ++i) {
      source_.AddRow(std::vector<TokenId>{8, 5, 6 + i % 2}, 3);
    }
    PlanSelection& selection =
        source_.AddSelection(RequestId{request}, num_beams, num_beams,
                             std::make_shared<SelectionParams>());
    selection.first_logits = source_.plan.num_logits - 6 * num_beams;
    selection.num_generated = 3;
    BeamSelection& beams = selection.Choose<BeamSelection>();
    beams.num_candidates = num_candidates;
    for (int i = 0; i < 2 * num_beams; ++i) {
      beams.paths.drafts.push_back({5, 6 + i % 2});
      beams.paths.ranks.push_back(i / 2);
    }
    return selection;
  }
};

TEST_F(CudaStepBuilderPathsTest, EachRowOfLogitsIsSelectedForByItself) {
  AddBeams(0, 3, 6);
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  const CudaStep::Answer& answer = step->answers[0];
  EXPECT_NE(answer.paths, nullptr);
  ASSERT_EQ(answer.parts.size(), 18u);
  for (int i = 0; i < 18; ++i) {
    EXPECT_EQ(answer.parts[i].group_idx, i);
    EXPECT_EQ(answer.parts[i].first_candidate, 6 * i);
  }
  // All tokens have rows of logits, so a graph runs it.
  EXPECT_TRUE(step->is_replayable);
}

// 20 paths of 10 beams have 60 rows of logits and 20 candidates each, 1,200 of
// the 2,000 that there are: there is no room for as many again. So the second
// request has the step that it would have without paths.
TEST_F(CudaStepBuilderPathsTest, WithoutRoomThereIsOneSelectionOfAllBeams) {
  AddBeams(0, 10, 20);
  AddBeams(1, 10, 20);
  const absl::StatusOr<CudaStep> step = Build(absl::OkStatus());
  ASSERT_OK(step.status());
  EXPECT_EQ(step->answers[0].parts.size(), 60u);
  EXPECT_EQ(step->answers[1].paths, nullptr);
  EXPECT_TRUE(step->answers[1].has_unverified_drafts);
  EXPECT_EQ(step->answers[1].parts.size(), 1u);
  EXPECT_EQ(step->shape.num_logits_rows, 60 + 10);
}

// Groups of such a step keep no slots: there may be as many in the next.
TEST_F(CudaStepBuilderPathsTest, SlotsOfPathsAreFreeAfterTheStep) {
  for (int i = 0; i < 20; ++i) {
    AddBeams(i, 21, 2);  // 42 slots of 256
    ASSERT_OK(Build(absl::OkStatus()).status());
  }
}

}  // namespace
}  // namespace espalier::testing
