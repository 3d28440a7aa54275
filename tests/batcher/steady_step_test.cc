// Allocations of a step while all groups decode: the blocks of its plan and of
// its record, and none per group.
//
// A program of its own, because it replaces operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "batcher/scheduler/scheduler.h"
#include "tests/replace_operator_new.h"
#include "tests/status_matchers.h"

namespace {

thread_local int64_t num_allocations = 0;

}  // namespace

void espalier::testing::OnAllocation() { ++num_allocations; }

namespace espalier {
namespace {

constexpr int kPageSize = 16;

ModelDescription NullModel() {
  ModelDescription model;
  model.vocab_size = 1000;
  model.max_context = 8192;
  model.page_size = kPageSize;
  model.num_pages = 1 << 16;
  model.has_shareable_pages = true;
  return model;
}

// Requests alike that do not end, and answers that are made up.
class SteadyRequests {
 public:
  SteadyRequests(int count, const GenerationParams& params, int num_in_flight)
      : scheduler_(NullModel(), {.max_running = count,
                                 .max_step_tokens = 1 << 20,
                                 .validate_steps = false}),
        num_in_flight_(num_in_flight) {
    for (int i = 0; i < count; ++i) {
      Request request = {{i, i, i}, params};
      request.params.max_new_tokens = 4000;
      request.params.ignore_eos = true;
      EXPECT_OK(ValidateRequest(NullModel(), &request));
      scheduler_.Submit(RequestId{i}, PreparedRequest(std::move(request)),
                        [](const absl::StatusOr<Result>&) {});
    }
  }
  ~SteadyRequests() {
    while (!answers_.empty()) Answer();
    scheduler_.CancelAll(absl::CancelledError());
  }

  // Allocations of a plan and an answer.
  int64_t Step() {
    const int64_t before = num_allocations;
    StepPlan plan = scheduler_.Plan();
    int64_t count = num_allocations - before;
    EXPECT_FALSE(plan.empty());
    answers_.push_back(AnswerTo(plan));
    if (std::ssize(answers_) == num_in_flight_) count += Answer();
    return count;
  }

 private:
  static SelectionResult Candidates(RequestId request, bool draws, int num_rows,
                                    int count) {
    SelectionResult answer = {.request = request};
    for (int i = 0; i < count; ++i) {
      // Half of the beams have two children each, and the others none.
      const int beam = num_rows == 1 ? 0 : (draws ? i : i / 2);
      answer.candidates.push_back({beam, 1 + i, -0.01f * (1 + i)});
    }
    return answer;
  }

  static StepResult AnswerTo(const StepPlan& plan) {
    StepResult result;
    for (const PlanSelection& selection : plan.selections) {
      const DrawSelection* const draws = selection.as_draws();
      const int count = draws != nullptr
                            ? static_cast<int>(draws->samples.size())
                            : selection.num_candidates();
      result.selections.push_back(Candidates(
          selection.request, draws != nullptr, selection.num_rows, count));
    }
    for (const GroupContinuation& continuation : plan.continuations) {
      const bool draws = continuation.kind == SelectionKind::kDraws;
      const int num_rows = static_cast<int>(continuation.tail_pages.size());
      result.selections.push_back(
          Candidates(continuation.request, draws, num_rows,
                     draws ? num_rows : continuation.num_candidates));
    }
    return result;
  }

  int64_t Answer() {
    StepResult answer = std::move(answers_.front());
    answers_.pop_front();
    const int64_t before = num_allocations;
    scheduler_.Advance(std::move(answer));
    return num_allocations - before;
  }

  Scheduler scheduler_;
  const int num_in_flight_;
  std::deque<StepResult> answers_;
};

// Counts the allocations of a step in which no page begins and no path outgrows
// its memory.
int64_t NumAllocations(int num_requests, const GenerationParams& params,
                       int num_in_flight) {
  SteadyRequests requests(num_requests, params, num_in_flight);
  for (int i = 0; i < 4 * kPageSize; ++i) requests.Step();
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kPageSize; ++i) least = std::min(least, requests.Step());
  return least;
}

TEST(SteadyStepTest, AllocatesNothingForAGroup) {
  GenerationParams samples;
  samples.do_sample = true;
  samples.num_return_sequences = 4;
  GenerationParams beams;
  beams.num_beams = 4;
  for (const GenerationParams& params : {GenerationParams(), samples, beams}) {
    for (const int num_in_flight : {1, 2}) {
      const int64_t few = NumAllocations(3, params, num_in_flight);
      const int64_t many = NumAllocations(40, params, num_in_flight);
      EXPECT_EQ(many, few) << params.num_beams << " beams, "
                           << params.num_return_sequences << " samples, "
                           << num_in_flight << " in flight";
      EXPECT_LE(many, 12);
    }
  }
}

}  // namespace
}  // namespace espalier
