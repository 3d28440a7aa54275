// Random requests for the toy model, and running a scheduler by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/scheduler/scheduler.h"
#include "executor/drafts/draft_model.h"
#include "executor/drafts/step_drafter.h"
#include "executor/host/persistent_groups.h"
#include "request/request.h"
#include "tests/toy_model.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {

// A request of any kind and width, with or without score processors; validated.
Request RandomRequest(std::mt19937& random, const ModelDescription& model);
std::vector<Request> RandomRequests(int count, uint32_t seed,
                                    const ModelDescription& model);

// Runs one plan without continuations as an executor would, on this thread.
// With a draft model it writes the drafts into the plan.
absl::StatusOr<StepResult> RunPlan(Model& model, const StepPlan& plan);
absl::StatusOr<StepResult> RunPlan(Model& model, StepPlan* plan,
                                   DraftModel* draft);

// Runs plans as an executor that runs ahead would, on this thread.
class PlanRunner {
 public:
  explicit PlanRunner(Model* model, DraftModel* draft = nullptr);
  absl::StatusOr<StepResult> Run(StepPlan plan);
  int num_groups() const {
    return groups_.num_groups() + (drafter_ ? drafter_->num_groups() : 0);
  }

 private:
  Model* const model_;
  std::optional<StepDrafter> drafter_;
  PersistentGroups groups_;
};

// Plans and runs until no request can run; `before_step(n)` is called before
// the n-th plan and may submit and cancel. With two plans in flight a plan is
// written and run before the last one's result is given to the scheduler;
// the executor must keep no group in the end.
void RunToEnd(
    Scheduler& scheduler, Model& model,
    const std::function<void(int)>& before_step = [](int) {},
    int plans_in_flight = 1, DraftModel* draft = nullptr);

// The request's result when no other request runs. `tokenizer` finds stop
// strings.
absl::StatusOr<Result> RunAlone(
    const ToyModelOptions& options, const Request& request,
    std::shared_ptr<const Tokenizer> tokenizer = nullptr);

// No request runs or waits, and no page or host slot is held or reserved.
void ExpectNothingHeld(const Scheduler& scheduler);

// True if the hypotheses are equal to the bit, and for SameResult also the
// number of steps.
bool SameResult(const Result& a, const Result& b);
bool SameHypotheses(const Result& a, const Result& b);

// Generates exactly `num_tokens`: no token ends it.
inline Request LongRequest(int num_tokens) {
  Request request{{1, 2, 3, 4}, {}};
  request.params.max_new_tokens = num_tokens;
  request.params.ignore_eos = true;
  return request;
}

}  // namespace espalier::testing
