// Simulation: one run of a simulator (simulation.h): its events, and the laws
// that are checked after each.
//
//   simulation.cc         arrivals, plans, answers, the clock
//   simulation_checks.cc  allowed results of a request, order of admission,
//                         and the state at the end
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "batcher/scheduler/scheduler.h"
#include "batcher/scheduler/turn.h"
#include "executor/drafts/draft_model.h"
#include "executor/host/persistent_groups.h"
#include "tests/sim/best_so_far.h"
#include "tests/sim/sim_case.h"
#include "tests/sim/sim_model.h"
#include "tests/sim/simulation.h"
#include "trace/trace.h"

namespace espalier::testing {

// Who is admitted, in this order.
class AdmissionLog final : public TraceSink {
 public:
  void On(const TraceEvent& event) override {
    if (const auto* request = std::get_if<TraceRequest>(&event)) {
      admitted_.push_back(request->request);
    }
  }
  std::vector<RequestId> Take() { return std::exchange(admitted_, {}); }

 private:
  std::vector<RequestId> admitted_;
};

// A request that is not answered yet.
struct LiveRequest {
  int kind = 0;  // index in SimCase::requests
  Turn turn;
  int64_t owner = 0;  // owner of its pages
  bool may_share = false;
  bool is_admitted = false;  // where there is a trace
  std::string tenant = {};
  int64_t priority = 0;
  std::optional<int64_t> deadline = {};  // by the clock
  int num_decided = 0;                   // steps with a result read
  int64_t num_steps_as_first = 0;
};

// A plan that was run and is not answered.
struct StepInFlight {
  absl::StatusOr<StepResult> result;
  int64_t end = 0;                        // by the clock
  RequestId first_after = {};             // submitted after the plan
  std::optional<RequestId> wrong_answer;  // request with a planted wrong answer
  bool is_cut = false;                    // an answer is missing
};

class Simulation {
 public:
  Simulation(uint32_t seed, const SimOptions& options);
  SimReport Run();

 private:
  int64_t NumSteps() const { return static_cast<int64_t>(in_flight_.size()); }
  bool ok() const { return report_.fault.empty(); }
  template <typename... Parts>
  void Fail(const Parts&... parts);
  void Hash(uint64_t value);
  void CountEvents(int64_t count) { report_.figures.num_events += count; }

  void Arrive();
  void Submit();
  void CancelSomebody();
  void CancelAll();
  // When the earliest deadline passes.
  std::optional<int64_t> FirstDeadline() const;
  void ExpireDeadlines();

  void PlanSteps();
  bool PlanStep();
  void RunStep(StepPlan plan);
  absl::StatusOr<StepResult> Execute(const StepPlan& plan);
  void SpoilAnswer(StepInFlight* step);
  void SpoilFurther(std::vector<SelectionResult>* further);
  void AnswerStep();

  void OnDone(RequestId id, const absl::StatusOr<Result>& result);
  // Why a request may end with an error; "" if it may.
  std::string CheckError(RequestId id, const LiveRequest& live,
                         const absl::Status& status) const;
  void CheckResult(RequestId id, const LiveRequest& live,
                   const absl::StatusOr<Result>& result);
  void CheckAtDeadline(RequestId id, const LiveRequest& live,
                       const absl::StatusOr<Result>& result);
  const absl::StatusOr<Result>& Alone(int kind);

  void CountPlan(const StepPlan& plan);
  void HashPlan(const StepPlan& plan);
  void CheckAdmissions();
  void CheckFirst();
  void CheckEnd();

  const int64_t num_events_;
  const SimCase case_;
  Dice dice_;
  std::shared_ptr<AdmissionLog> log_;  // null: no trace
  SimModel model_;
  std::shared_ptr<SimModel> draft_source_;
  std::shared_ptr<DraftModel> draft_;   // null: nothing is verified
  std::optional<StepDrafter> drafter_;  // with draft_
  PersistentGroups groups_;
  ThreadPool threads_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::optional<absl::StatusOr<Result>>> alone_;  // by kind
  std::vector<SearchStates> states_alone_;                    // as well
  int64_t max_steps_as_first_ = 0;

  int64_t now_ = 0;
  int64_t next_arrival_ = 0;
  int64_t next_id_ = 0;
  int64_t num_plans_ = 0;
  int64_t num_failures_ = 0;
  std::map<RequestId, LiveRequest> live_;
  std::deque<StepInFlight> in_flight_;
  int num_empty_steps_ = 0;  // one after the other
  // While the scheduler is called.
  std::optional<RequestId> submitted_;
  std::set<RequestId> cancelled_;
  const StepInFlight* answered_ = nullptr;
  bool expires_ = false;
  SimReport report_;
};

template <typename... Parts>
void Simulation::Fail(const Parts&... parts) {
  if (!ok()) return;
  report_.fault = std::string(Internal(parts...).message());
}

}  // namespace espalier::testing
