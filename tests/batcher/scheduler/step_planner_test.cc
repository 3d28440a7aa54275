#include "batcher/scheduler/step_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/batcher/scheduler/scheduler_parts.h"
#include "tests/few_cases.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

struct PlannerSetting {
  ToyModelOptions toy;
  SchedulerOptions options;
  int num_in_flight = 1;
  int min_prompt_tokens = 1;
};

PlannerSetting AnySetting(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[random() % values.size()];
  };
  PlannerSetting setting;
  setting.toy.num_tokens_read = 2;
  setting.toy.page_size = one_of({1, 3, 4});
  // About what the widest request takes, or enough for all.
  setting.toy.num_pages =
      one_of({40, 60, 80, 600}) / setting.toy.page_size + random() % 8;
  setting.toy.has_shareable_pages = true;
  setting.options = {.max_running = one_of({1, 3, 100}),
                     .max_step_tokens = one_of({5, 9, 40}),
                     .prefill_share = one_of({0, 1, 2, 4}) / 4.0,
                     .prefix_cache = one_of({0, 1}) == 1,
                     .validate_steps = true};
  setting.num_in_flight = one_of({1, 1, 2});
  if (random() % 3 > 0) return setting;
  // Steps for prompts alone, and pages that decoding takes from prompts.
  setting.toy.page_size = 1;
  setting.toy.num_pages = 60 + random() % 60;
  setting.min_prompt_tokens = 20 + random() % 30;
  setting.options.max_running = 100;
  setting.options.max_step_tokens = 9;
  setting.options.prefill_share = 1;
  setting.options.prefix_cache = false;
  return setting;
}

// Returns the first row of a group; -1 if it has none. A preempted group has no
// sequences.
int FirstRow(const RunningGroup& running, const StepPlan& plan) {
  if (running.is_preempted()) return -1;
  const GroupPages& pages = running.group->pages();
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    for (int rank = 0; rank < pages.num_sequences(); ++rank) {
      if (pages.sequence(rank).id == plan.rows[row].sequence) return row;
    }
  }
  return -1;
}

// Requests of several tenants and priorities that arrive while others run, and
// the laws of each plan.
class PlannedRequests {
 public:
  // Counts of plans, so that no law holds for lack of cases.
  struct Reached {
    int num_preempting = 0;
    int num_for_prompts = 0;
    int num_empty = 0;
    int num_coming_in = 0;
    int num_drafts = 0;
  };

  explicit PlannedRequests(uint32_t seed)
      : random_(seed),
        setting_(AnySetting(random_)),
        toy_(setting_.toy),
        parts_(ToyModel(setting_.toy).description(), setting_.options),
        planner_(parts_.model, parts_.options, &parts_.pool, &parts_.groups,
                 &parts_.admission, &parts_.preemption, &parts_.in_flight,
                 &parts_.counts),
        runner_(&toy_) {}

  void Run(int num_requests, Reached* reached) {
    while (true) {
      for (int i = random_() % 3; i > 0 && num_requests > 0; --i) {
        --num_requests;
        Submit();
      }
      StepPlan plan = parts_.groups.TakeNextPlan();
      Write(&plan, reached);
      if (::testing::Test::HasFailure()) return;
      const bool waits = plan.empty() && !results_.empty();
      if (waits) {
        std::swap(*parts_.groups.next_plan(), plan);
      } else if (!plan.is_noop()) {
        planner_.Remember(plan);
        parts_.preemption.OnPlanOut();
        parts_.groups.OnPlanOut();
        ++num_plans_;
        results_.push_back(runner_.Run(std::move(plan)));
      }
      if (waits || std::ssize(results_) == setting_.num_in_flight) Advance();
      if (results_.empty() && num_requests == 0 && parts_.groups.empty() &&
          parts_.admission.waiting().empty()) {
        break;
      }
    }
    for (int64_t id = 0; id < std::ssize(requests_); ++id) {
      parts_.ExpectEndAsAlone(id, setting_.toy, requests_[id]);
    }
    EXPECT_EQ(parts_.pool.num_in_use(), 0);
  }

 private:
  struct Before {
    bool prefills = false;
    bool can_decode = false;
    bool is_preempted = false;
  };

  void Submit() {
    Request request = AnyRequest(random_, parts_.model);
    request.params.priority = random_() % 2;
    while (std::ssize(request.prompt_tokens) < setting_.min_prompt_tokens) {
      request.prompt_tokens.push_back(1 + random_() % 9);
    }
    request.params.tenant = std::string(random_() % 3, 't');
    PreparedRequest prepared = parts_.Prepare(request);
    const auto needs = parts_.admission.Fit(&prepared);
    if (!needs.ok()) return;  // it never fits
    const int64_t id = std::ssize(requests_);
    parts_.admission.Push(
        {.turn = Turn::Of(request.params.priority, num_plans_, RequestId{id}),
         .prepared = std::move(prepared),
         .needs = *needs,
         .done = parts_.EndOf(id),
         .watcher = nullptr});
    requests_.push_back(std::move(request));
  }

  void Advance() {
    absl::StatusOr<StepResult> result = std::move(results_.front());
    results_.pop_front();
    ASSERT_OK(result);
    parts_.groups.ResetDemand();
    parts_.applier.Apply(parts_.in_flight.TakeOldest(), &*result);
    parts_.groups.EraseDone();
  }

  void Write(StepPlan* plan, Reached* reached) {
    std::map<RequestId, Before> before;
    for (const RunningGroup& running : parts_.groups) {
      const SequenceGroup& group = *running.group;
      before[running.id] = {
          .prefills = group.prefilling(),
          .can_decode = !group.prefilling() && group.can_plan(),
          .is_preempted = running.is_preempted()};
    }
    planner_.Write(plan);

    int num_preempted = 0;
    int num_coming_in = 0;
    int num_decoding = 0;
    int num_left_out = 0;      // groups that could decode
    bool is_any_fed = false;   // a prompt
    bool is_any_held = false;  // a prompt that was left out
    // Kind and turn, by row: the laws' order.
    std::map<int, std::pair<int, Turn>> order;
    for (const RunningGroup& running : parts_.groups) {
      const SequenceGroup& group = *running.group;
      const auto at = before.find(running.id);
      const bool comes_in = at == before.end() || (at->second.is_preempted &&
                                                   !running.is_preempted());
      const Before was = comes_in ? Before() : at->second;
      num_coming_in += comes_in;
      num_preempted += running.is_preempted() && !was.is_preempted;
      const int row = FirstRow(running, *plan);
      const bool is_ahead = std::ranges::any_of(
          plan->continuations,
          [&](const auto& ahead) { return ahead.request == running.id; });
      // If the prefix cache has all tokens of a preempted group, it decodes.
      const bool was_found = was.prefills && group.has_output() &&
                             std::ranges::count(plan->selections, running.id,
                                                &PlanSelection::request) > 0;
      const int kind = was.can_decode || was_found ? 0 : was.prefills ? 1 : 2;
      if (row >= 0) order[row] = {kind, running.turn};
      EXPECT_TRUE(!is_ahead || kind == 0) << running.id;
      const bool is_planned = row >= 0 || is_ahead;
      is_any_fed = is_any_fed || (is_planned && kind > 0);
      num_decoding += is_planned && kind == 0 ? group.max_decode_rows() : 0;
      if (is_planned || running.is_preempted()) continue;
      num_left_out += was.can_decode;
      is_any_held = is_any_held || (was.prefills && group.prefilling() &&
                                    !group.is_waiting_for_prefix());
    }
    std::vector<std::pair<int, Turn>> planned;
    for (const auto& [row, kind] : order) planned.push_back(kind);
    EXPECT_TRUE(std::ranges::is_sorted(planned));
    EXPECT_TRUE(std::ranges::is_sorted(
        plan->continuations, {}, [&](const GroupContinuation& ahead) {
          return parts_.groups.Find(ahead.request)->turn;
        }));

    const bool is_in_flight = !parts_.in_flight.empty();
    const bool is_for_prompts = num_left_out > 0 && is_any_fed;
    if (num_left_out > 0) {
      EXPECT_EQ(num_decoding, 0) << "some decode, others do not";
      EXPECT_TRUE(is_any_fed || is_in_flight);
    }
    if (is_for_prompts && !is_in_flight) {
      EXPECT_GT(setting_.options.prefill_share, 0);
      EXPECT_FALSE(was_for_prompts_) << "two steps in a row for prompts";
    }
    was_for_prompts_ = is_for_prompts;

    int num_tokens = std::ssize(plan->tokens);
    for (const GroupContinuation& ahead : plan->continuations) {
      num_tokens += std::ssize(ahead.tail_pages);
    }
    const int max_tokens = setting_.options.max_step_tokens;
    EXPECT_LE(num_tokens, std::max(max_tokens, num_decoding));
    EXPECT_TRUE(!is_any_held || num_tokens >= max_tokens) << num_tokens;

    int num_drafted = 0;
    for (const PlanSelection& selection : plan->selections) {
      for (const auto& draft : selection.drafts()) {
        num_drafted += std::ssize(draft);
      }
    }
    if (num_preempted > 0) {
      EXPECT_EQ(num_coming_in, 0);
      EXPECT_EQ(num_drafted, 0);
    } else if (num_tokens < max_tokens) {
      EXPECT_FALSE(parts_.admission.NextFits());
    }
    if (plan->empty() && !is_in_flight) {
      EXPECT_TRUE(parts_.groups.empty());
      EXPECT_TRUE(parts_.admission.waiting().empty());
    }
    reached->num_preempting += num_preempted > 0;
    reached->num_for_prompts += is_for_prompts && !is_in_flight;
    reached->num_empty += plan->empty() && is_in_flight;
    reached->num_coming_in += num_coming_in > 0;
    reached->num_drafts += num_drafted > 0;
  }

  std::mt19937 random_;
  const PlannerSetting setting_;
  ToyModel toy_;
  SchedulerParts parts_;
  StepPlanner planner_;
  PlanRunner runner_;
  std::vector<Request> requests_;
  std::deque<absl::StatusOr<StepResult>> results_;
  int64_t num_plans_ = 0;
  bool was_for_prompts_ = false;
};

// Beams and samples that can decode, then prompts, then groups that come in,
// each by turn; no draft and no newcomer beside a preemption; and no idle step.
TEST(StepPlannerTest, EachPlanHasTheGroupsThatAreNext) {
  PlannedRequests::Reached reached;
  for (uint32_t seed = 0; seed < Cases(500u, 60u) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    PlannedRequests(seed).Run(/*num_requests=*/14, &reached);
  }
  EXPECT_GT(reached.num_preempting, 0);
  EXPECT_GT(reached.num_for_prompts, 0);
  EXPECT_GT(reached.num_empty, 0);
  EXPECT_GT(reached.num_coming_in, 0);
  EXPECT_GT(reached.num_drafts, 0);
}

}  // namespace
}  // namespace espalier
