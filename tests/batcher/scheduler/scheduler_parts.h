// SchedulerParts: the parts of a scheduler without the scheduler, so that each
// can be tested alone. Groups are added without admission, at any turn, and
// steps of all of them are written and applied by hand.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/scheduler/admission.h"
#include "batcher/scheduler/plan_writer.h"
#include "batcher/scheduler/plans_in_flight.h"
#include "batcher/scheduler/preemption.h"
#include "batcher/scheduler/result_applier.h"
#include "batcher/scheduler/running_groups.h"
#include "batcher/scheduler/scheduler_options.h"
#include "batcher/scheduler/timed_stats.h"
#include "beam/prepared_request.h"
#include "beam/sequence_group.h"
#include "exec_request/step_plan.h"
#include "pages/host_pool.h"
#include "pages/page_pool.h"
#include "pages/prefix_tree.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace espalier::testing {

// A request of any kind, validated; it may also draft, or score continuations.
inline Request AnyRequest(std::mt19937& random, const ModelDescription& model) {
  Request request = RandomRequest(random, model);
  GenerationParams& params = request.params;
  if (random() % 8 == 0) {
    Request scoring = {request.prompt_tokens, {}};
    scoring.continuations.resize(1 + random() % 4);
    for (std::vector<int64_t>& tokens : scoring.continuations) {
      tokens.resize(model.has_shareable_pages ? 1 + random() % 3 : 1);
      for (int64_t& token : tokens) token = 1 + random() % 3;
    }
    EXPECT_OK(ValidateRequest(model, &scoring));
    return scoring;
  }
  const bool may_draft =
      model.has_shareable_pages && CanSpeculate(params) && random() % 3 == 0;
  if (may_draft) {
    params.speculate = {.method = model.limits.max_drafted_length > 0
                                      ? SpeculationMethod::kDraft
                                      : SpeculationMethod::kNgram,
                        .num_tokens = 1 + static_cast<int>(random() % 8),
                        .mode = SpeculationMode::kCoupled,
                        .always_drafts = true};
  }
  return request;
}

struct SchedulerParts {
  SchedulerParts(const ModelDescription& description,
                 const SchedulerOptions& scheduling)
      : model(description),
        options(scheduling),
        pool(model.num_pages, model.page_size),
        tree(&pool),
        host_pool(model.num_host_slots),
        groups(options, &counts),
        admission(model, options, &pool, shared_tree(), &groups, &counts),
        writer(model, admission.max_step_tokens(), &pool, &groups, &counts),
        preemption(model, options, admission.max_step_tokens(), &pool,
                   &host_pool, &groups, &counts),
        applier(model, /*async_scheduling=*/false, &groups, &counts) {}

  PrefixTree* shared_tree() {
    return options.prefix_cache && model.has_shareable_pages ? &tree : nullptr;
  }

  PreparedRequest Prepare(Request request) const {
    return PreparedRequest(std::move(request), nullptr, &model);
  }
  auto EndOf(int64_t id) {
    return [this, id](absl::StatusOr<Result> result) {
      ends[id].push_back(std::move(result));
    };
  }

  // Adds the group of a validated request.
  RunningGroup& Add(int64_t id, int64_t step, Request request) {
    PreparedRequest prepared = Prepare(std::move(request));
    const RequestNeeds needs = *admission.Fit(&prepared);
    groups.ReserveOne();
    return groups.Add(
        {.turn = {step, RequestId{id}},
         .id = RequestId{id},
         .group = std::make_unique<SequenceGroup>(
             RequestId{id}, std::move(prepared), &pool, &ids, shared_tree()),
         .watcher = nullptr,
         .needs = needs,
         .done = EndOf(id)});
  }

  // Adds a group's next work to a plan, if the step has room for its prompt.
  bool PlanIfRoom(RunningGroup& running, StepPlan* plan) {
    const SequenceGroup& group = *running.group;
    if (group.prefilling()) groups.MatchPrefix(running, 0, plan);
    if (!group.can_plan() || group.is_waiting_for_prefix() ||
        (group.prefilling() && !writer.HasRoomFor(group))) {
      return false;
    }
    writer.PlanGroup(running, plan);
    return true;
  }
  StepPlan BeginPlan() {
    StepPlan plan = groups.TakeNextPlan();
    writer.Begin(&plan);
    writer.BeginStep(&plan);
    return plan;
  }
  // Sends a plan, which names the saves of `preemption`.
  void Send(const StepPlan& plan) {
    writer.Remember(plan, preemption.saved(), &in_flight);
    preemption.OnPlanOut();
    groups.OnPlanOut();
  }
  // Runs a step of all groups, and resumes those that are preempted. Returns
  // false if there was nothing to do.
  bool Step(Model& toy) {
    StepPlan plan = BeginPlan();
    for (RunningGroup& running : groups) {
      if (running.is_preempted()) running.group->Resume();
      PlanIfRoom(running, &plan);
    }
    if (plan.is_noop()) return false;
    Send(plan);
    absl::StatusOr<StepResult> result = RunPlan(toy, plan);
    EXPECT_OK(result);
    applier.Apply(in_flight.TakeOldest(), &*result);
    groups.EraseDone();
    return true;
  }

  // Expects that the request ended once, as it ends when it runs alone.
  void ExpectEndAsAlone(int64_t id, const ToyModelOptions& toy,
                        const Request& request) {
    ASSERT_EQ(ends[id].size(), 1) << "ends of request " << id;
    Request plain = request;
    plain.params.speculate.reset();
    const absl::StatusOr<Result> alone = RunAlone(toy, plain);
    ASSERT_EQ(ends[id][0].status(), alone.status());
    if (!alone.ok()) return;
    const Result& result = *ends[id][0];
    EXPECT_TRUE(SameHypotheses(result, *alone)) << "of request " << id;
    EXPECT_EQ(result.continuations.size(), alone->continuations.size());
    for (size_t i = 0; i < result.continuations.size(); ++i) {
      EXPECT_EQ(result.continuations[i].log_probs,
                alone->continuations[i].log_probs);
    }
  }

  const ModelDescription model;
  const SchedulerOptions options;
  TimedStats counts;
  PagePool pool;
  PrefixTree tree;
  HostPool host_pool;
  SequenceIdSource ids;
  RunningGroups groups;
  Admission admission;
  PlanWriter writer;
  PlansInFlight in_flight;
  Preemption preemption;
  ResultApplier applier;
  // By request: each result with which `done` was called.
  std::map<int64_t, std::vector<absl::StatusOr<Result>>> ends;
};

}  // namespace espalier::testing
