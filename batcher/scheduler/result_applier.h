// ResultApplier: applies the result of a step to the groups that ran in it, and
// learns from its times what tokens cost. A group whose result cannot be
// applied ends, and the others are not affected: with the result's error, or
// with RunningGroups::out_of_memory if memory is lacking.
//
// It owns the measured costs (step_costs.h), from which a group's draft length
// follows. It plans nothing; forks and ended sequences go into the next plan
// (RunningGroups::next_plan).
//
// Invariant: results of ended requests are dropped.
//
// Belongs to its scheduler's strand.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "base/model_description.h"
#include "batcher/scheduler/plans_in_flight.h"
#include "batcher/scheduler/running_groups.h"
#include "batcher/scheduler/step_costs.h"
#include "batcher/scheduler/timed_stats.h"
#include "beam/sequence_group.h"
#include "exec_request/step_plan.h"

namespace espalier {

class ResultApplier {
 public:
  // With `async_scheduling` plans are requested while others run. All pointers
  // outlive this.
  ResultApplier(const ModelDescription& model, bool async_scheduling,
                RunningGroups* groups, TimedStats* counts);

  // Groups whose lists of legal tokens take long wait for these from now on,
  // which `make` has another thread make. It is called within Apply, and must
  // not throw. Without it, the strand makes them where it needs them.
  void MakeListsBy(std::function<void(ListWork)> make) {
    make_lists_ = std::move(make);
  }

  // Applies the result of `plan`. Groups that end remain until
  // RunningGroups::EraseDone. Does not throw.
  // REQUIRES: ValidateStepResult returns OK.
  void Apply(const PlanInFlight& plan, StepResult* result);
  // Ends the requests of a plan that failed.
  void Fail(const PlanInFlight& plan, const absl::Status& why);

 private:
  void RecordCosts(const PlanInFlight& plan, const StepResult& result);
  void TakeScoring(PromptLogprobsResult&& result, size_t num_tokens);
  // Ends those of the plan's requests that only score and have all their
  // scores.
  void FinishScored(const PlanInFlight& plan);
  void TakeDrafts(const PlanInFlight& plan, std::span<DraftedTokens> drafts);
  // `answers_plan`: the groups have no other results in the plan.
  void ApplySelections(std::span<const SelectionResult> results,
                       bool answers_plan);
  // Throws std::bad_alloc.
  void AwaitLists(SequenceGroup* group);
  // SequenceGroup::ApplyResult for a group that may have drafts.
  absl::Status ApplyDrafting(RunningGroup& running,
                             const SelectionResult& result);

  const bool async_scheduling_;
  const int vocab_size_;
  RunningGroups* const groups_;
  TimedStats* const counts_;
  std::function<void(ListWork)> make_lists_ = nullptr;
  StepCosts costs_;
  int num_decode_sequences_ = 1;  // in the last step that had any
};

}  // namespace espalier
