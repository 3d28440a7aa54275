// Samples that a draft model drafts for, in steps that are planned ahead of
// their last answers (rows_ahead.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/executor/drafts/step_drafter_fixture.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

class DraftsAheadTest : public StepDrafterTest {};

// Samples with drafts are planned before the last result is read, beside
// others; results are those of requests run alone.
TEST_F(DraftsAheadTest, SamplesThatDraftGoOnAheadOfAnswers) {
  DraftCounter counter(steps_.get());
  AcceptedTokens accepted;
  for (uint32_t seed = 1; seed <= Cases(6u, 2u); ++seed) {
    SCOPED_TRACE(seed);
    std::vector<Request> requests = AnyRequests(120, seed);
    std::erase_if(requests, [num = 0](const Request& request) mutable {
      return IsBeamSearch(request.params) && ++num % 8 != 0;
    });
    for (Request& request : requests) {
      if (!request.params.allowed_sequences) request.params.max_new_tokens = 60;
    }
    Speculate(SpeculationMode::kCoupled, &requests);
    ASSERT_NO_FATAL_FAILURE(ExpectAsAlone(
        requests, Drive(counter, requests, {.num_in_flight = 2}), &accepted));
  }
  EXPECT_GT(counter.num_ahead, Cases(600, 100));
  EXPECT_GT(accepted.total(), Cases(1000, 200));
}

// Records the plans that reach the model: a line for each selection with
// drafts, except near the end, where lengths depend on the planner.
class PlanRecorder : public ToyModel {
 public:
  explicit PlanRecorder(int max_generated)
      : ToyModel(DraftedModel()), max_generated_(max_generated) {}

  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    EXPECT_FALSE(RowsAhead::HasRowsAhead(plan));
    for (const PlanSelection& selection : plan.selections) {
      if (!selection.drafts().empty()) Record(plan, selection);
    }
    return ToyModel::Forward(plan, logits);
  }

  std::vector<std::string> lines;

 private:
  void Record(const StepPlan& plan, const PlanSelection& selection) {
    std::string line =
        Concat(selection.num_rows, " rows of ", selection.num_slots,
               " slots, drafts of ", selection.as_draws()->drafts.max_tokens);
    size_t plan_row = 0;
    while (plan.rows[plan_row].first_logits != selection.first_logits) {
      ++plan_row;
    }
    for (int i = 0; i < selection.num_rows; ++i, ++plan_row) {
      if (selection.num_generated_of(i) > max_generated_) return;
      const PlanRow& row = plan.rows[plan_row];
      line += Concat("; sample ", selection.as_draws()->samples[i], " in ",
                     selection.slots[i], " at ", row.first_position, ", ",
                     selection.num_generated_of(i), " tokens of ",
                     selection.cum_log_probs[i], ", ",
                     plan.row_pages(plan_row).size(), " pages, feeds");
      EXPECT_EQ(row.num_logits, row.num_tokens);
      for (const TokenId token : plan.row_tokens(row)) {
        line += Concat(" ", token);
      }
      if (selection.histories.empty()) continue;
      line += " after";
      for (const TokenId token : selection.histories[i]) {
        line += Concat(" ", token);
      }
    }
    lines.push_back(line);
  }

  const int max_generated_;
};

// A step that is planned ahead is the one that is planned when the answer
// before it is read.
TEST_F(DraftsAheadTest, RowsAheadAreThoseOfAPlannerThatHasReadTheAnswer) {
  size_t num_lines = 0;
  for (int num_tokens = 1; num_tokens <= 4; ++num_tokens) {
    for (int i = 0; i < 6; ++i) {
      Request request{{1, 2, 3, 4, 5}, {}};
      GenerationParams& params = request.params;
      params.do_sample = true;
      params.seed = i;
      params.num_return_sequences = 1 + i % 3;
      params.max_new_tokens = 60;
      params.ignore_eos = i % 2 == 0;
      if (i % 3 == 2) params.frequency_penalty = 0.5;
      params.speculate = {.method = SpeculationMethod::kDraft,
                          .num_tokens = num_tokens,
                          .mode = SpeculationMode::kCoupled,
                          .always_drafts = true};
      ASSERT_OK(ValidateRequest(steps_->description(), &request));
      std::vector<std::string> lines[2];
      for (const int num_in_flight : {1, 2}) {
        const auto recorder =
            std::make_shared<PlanRecorder>(60 - 3 * (num_tokens + 1));
        const auto drafting = MakeDrafting(recorder);
        DraftCounter counter(drafting.get());
        const Answers answers =
            Drive(counter, {request}, {.num_in_flight = num_in_flight});
        EXPECT_OK(answers[0].status());
        EXPECT_EQ(counter.num_ahead > 0, num_in_flight == 2);
        lines[num_in_flight - 1] = recorder->lines;
      }
      EXPECT_EQ(lines[0], lines[1]);
      num_lines += lines[0].size();
    }
  }
  EXPECT_GT(num_lines, 100u);
}

}  // namespace
}  // namespace espalier::testing
