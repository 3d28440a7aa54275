// A plan may have a copy for a group and no tokens of it. If it fails, the copy
// was not made.
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "tests/batcher/toy_requests.h"
#include "tests/sim/sim_model.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

TEST(FailingCopyTest, AGroupEndsWithThePlanThatHasItsCopy) {
  SimModelOptions options = {.vocab_size = 40, .page_size = 4};
  options.eos_token_ids = {};
  SimModel model(options, [](RequestId) { return SimModel::Asker{}; });
  Scheduler scheduler(model.description(),
                      {.max_step_tokens = 9, .validate_steps = true});
  // The second and third wait for the first page of the first. When that is
  // there the second feeds as much as a step can, and the third copies two
  // tokens of the first's second page.
  std::vector<std::vector<TokenId>> prompts = {
      {1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 20, 21}};
  for (int i = 0; i < 30; ++i) prompts[1].push_back(30);
  std::map<int, absl::Status> ended;
  for (int i = 0; i < 3; ++i) {
    Request request{prompts[i], {}};
    request.params.max_new_tokens = 4;
    ASSERT_OK(ValidateRequest(model.description(), &request));
    scheduler.Submit(RequestId{i}, PreparedRequest(request),
                     [&ended, i](const absl::StatusOr<Result>& result) {
                       ended[i] = result.status();
                     });
  }
  scheduler.Advance(RunPlan(model, scheduler.Plan()));
  const StepPlan plan = scheduler.Plan();
  ASSERT_EQ(plan.rows.size(), 2);
  ASSERT_EQ(plan.page_copies.size(), 1);
  ASSERT_EQ(plan.page_copies[0].num_tokens, 2);
  model.Lose(plan);
  scheduler.Advance(absl::DataLossError("the device is gone"));
  EXPECT_EQ(scheduler.num_running(), 0);
  EXPECT_EQ(ended.size(), 3);
  RunToEnd(scheduler, model);
}

}  // namespace
}  // namespace espalier::testing
