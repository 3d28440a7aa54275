// An executor with a draft model: random requests of every kind are answered as
// each is alone and without drafts, and answers come in order.
#include "executor/drafts/step_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "executor/host/model_executor.h"
#include "request/request.h"
#include "tests/batcher/toy_requests.h"
#include "tests/executor/drafts/drafting_plan.h"
#include "tests/executor/drafts/step_drafter_fixture.h"
#include "tests/executor/drive.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"
#include "tests/unowned.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(StepDrafterTest, ChangesNoResult) {
  EXPECT_GT(steps_->description().limits.max_drafted_length, 0);
  AcceptedTokens accepted;
  for (uint32_t seed = 1; seed <= Cases(6u, 2u); ++seed) {
    SCOPED_TRACE(seed);
    std::vector<Request> requests = AnyRequests(40, seed);
    Speculate(SpeculationMode::kCoupled, &requests);
    ASSERT_NO_FATAL_FAILURE(ExpectAsAlone(
        requests, Drive(*steps_, requests, {.num_in_flight = 2}), &accepted));
  }
  EXPECT_GT(accepted.of_samples, Cases(500, 100));
  EXPECT_GT(accepted.of_beams, Cases(100, 20));
}

TEST_F(StepDrafterTest, DraftsWhereRejectionVerifies) {
  std::vector<Request> requests = AnyRequests(40, 7);
  Speculate(SpeculationMode::kRejection, &requests);
  int64_t num_accepted = 0;
  for (const auto& answer : Drive(*steps_, requests, {.num_in_flight = 2})) {
    if (answer.ok()) num_accepted += answer->usage.num_accepted_tokens;
  }
  EXPECT_GT(num_accepted, 50);
}

// A plan that drafts, and one after it that has nothing to do.
TEST_F(StepDrafterTest, AnswersComeInTheOrderOfPlans) {
  std::promise<std::vector<int>> all;
  std::vector<int> order;  // by one thread at a time
  for (int i = 0; i < 40; ++i) {
    StepPlan plan;
    if (i % 2 == 0) {
      auto params = std::make_shared<SelectionParams>();
      plan.drafting.push_back(
          {.request = RequestId{i},
           .prompt = std::make_shared<const std::vector<TokenId>>(9, 1),
           .generated = {2},
           .num_tokens = 4,
           .params = params});
    } else {
      plan.ended = {RequestId{i - 1}};
    }
    steps_->Execute(std::move(plan), [&, i](absl::StatusOr<StepResult> result) {
      ASSERT_OK(result.status());
      EXPECT_EQ(result->drafts.size(), i % 2 == 0 ? 1u : 0u);
      // The scheduler learns the costs of drafts from these fields.
      EXPECT_EQ(result->draft_time > absl::ZeroDuration(), i % 2 == 0);
      EXPECT_EQ(result->num_draft_rows > 0, i % 2 == 0);
      order.push_back(i);
      if (i == 39) all.set_value(order);
    });
  }
  const std::vector<int> done = all.get_future().get();
  ASSERT_EQ(done.size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(done[i], i);
}

// Fails with a status, or throws something other than std::exception.
class FailingDraftModel : public ToyModel {
 public:
  explicit FailingDraftModel(bool throws)
      : ToyModel(DraftedModel()), throws_(throws) {}
  absl::Status Forward(const StepPlan&, std::span<float>) override {
    if (throws_) throw 7;
    return absl::DataLossError("no weights");
  }

 private:
  const bool throws_;
};

TEST_F(StepDrafterTest, ResultsSayWhyADraftModelFailed) {
  for (const bool throws : {false, true}) {
    const auto steps =
        MakeDrafting(std::make_shared<ToyModel>(DraftedModel()),
                     std::make_shared<FailingDraftModel>(throws));
    StepPlan plan;
    plan.drafting.push_back(
        {.request = RequestId{1},
         .prompt = std::make_shared<const std::vector<TokenId>>(9, 1),
         .generated = {2},
         .num_tokens = 4,
         .params = std::make_shared<SelectionParams>()});
    const absl::StatusOr<StepResult> result = RunPlan(*steps, std::move(plan));
    ASSERT_OK(result.status());
    ASSERT_EQ(result->drafts.size(), 1u);
    EXPECT_TRUE(result->drafts[0].tokens.empty());
    EXPECT_EQ(result->draft_status,
              throws ? absl::InternalError("the draft model threw")
                     : absl::DataLossError("no weights"));
  }
}

TEST_F(StepDrafterTest, SamplesDraftAndVerifyInOnePlan) {
  DraftCounter counter(steps_.get());
  for (uint32_t seed = 1; seed <= Cases(6u, 2u); ++seed) {
    std::vector<Request> requests = AnyRequests(40, seed);
    std::erase_if(requests, [](const Request& request) {
      return request.params.allowed_sequences.has_value();
    });
    Speculate(SpeculationMode::kCoupled, &requests);
    Drive(counter, requests, {.num_in_flight = 2});
  }
  EXPECT_GT(counter.num_verified_at_once, Cases(100, 20));
  EXPECT_GT(counter.num_of_beams, Cases(100, 20));
  EXPECT_EQ(counter.num_verified_later, 0);
}

// A plan ends a request before the drafts that an earlier plan makes for it:
// then no later plan names it.
TEST(EndedDraftsTest, DraftsAfterTheEndLeaveNoState) {
  const auto model = std::make_shared<ToyModel>(DraftedModel());
  const auto pool = MakePool(1);
  const std::shared_ptr<DraftModel> drafts = *DraftModel::Create(model, pool);
  StepDrafter drafter(drafts, model->description().page_size);
  StepPlan plan;
  plan.drafting.push_back(
      {.request = RequestId{1},
       .prompt = std::make_shared<const std::vector<TokenId>>(9, 1),
       .generated = {2},
       .num_tokens = 4,
       .params = std::make_shared<SelectionParams>()});
  plan.max_draft_step_tokens = 100;
  StepPlan next;
  next.ended = {RequestId{1}};
  StepDrafter::Step first, second;
  drafter.Begin(&plan, &first);
  drafter.Begin(&next, &second);
  drafter.DraftForLater(&first);
  absl::StatusOr<StepResult> result = StepResult();
  drafter.End(&first, &result);
  ASSERT_OK(result.status());
  EXPECT_EQ(result->drafts.size(), 1u);
  EXPECT_FALSE(result->drafts[0].tokens.empty());
  EXPECT_EQ(drafts->num_sequences(), 0);
}

// Its steps fail, some of them.
class FailingModel : public ToyModel {
 public:
  FailingModel() : ToyModel(DraftedModel()) {}
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    if (++num_calls_ % 25 == 0) return absl::InternalError("no step");
    return ToyModel::Forward(plan, logits);
  }

 private:
  int num_calls_ = 0;
};

TEST_F(StepDrafterTest, WhereDraftingFailsStepsRunWithoutDrafts) {
  const auto steps = MakeDrafting(std::make_shared<ToyModel>(DraftedModel()),
                                  std::make_shared<FailingModel>());
  std::vector<Request> requests = AnyRequests(40, 5);
  Speculate(SpeculationMode::kCoupled, &requests);
  AcceptedTokens accepted;
  ASSERT_NO_FATAL_FAILURE(ExpectAsAlone(
      requests, Drive(*steps, requests, {.num_in_flight = 2}), &accepted));
  EXPECT_GT(accepted.total(), 0);
}

// Groups that continue from a failed step get an error; others continue.
TEST_F(StepDrafterTest, AStepThatFailsEndsItsRequestsAlone) {
  const auto steps = MakeDrafting(std::make_shared<FailingModel>());
  std::vector<Request> requests = AnyRequests(40, 3);
  Speculate(SpeculationMode::kCoupled, &requests);
  const Answers together =
      Drive(*steps, requests,
            {.num_in_flight = 2,
             .scheduler = {.max_running = 4, .validate_steps = true}});
  int num_failed = 0;
  int num_ended = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (together[i].status() == absl::InternalError("no step")) {
      ++num_failed;
      continue;
    }
    requests[i].params.speculate.reset();
    const auto alone = RunAlone(DraftedModel(), requests[i]);
    ASSERT_EQ(alone.status(), together[i].status());
    if (!alone.ok()) continue;
    EXPECT_TRUE(SameHypotheses(*alone, *together[i]));
    ++num_ended;
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_GT(num_ended, 0);
}

// It waits for plans that wait for drafts.
TEST_F(StepDrafterTest, ThatEndsAnswersWhatItHas) {
  int num_answered = 0;
  for (int i = 0; i < 10; ++i) {
    steps_->Execute(PlanThatDrafts(RequestId{i}),
                    [&](absl::StatusOr<StepResult> result) {
                      EXPECT_OK(result.status());
                      if (result.ok()) {
                        EXPECT_EQ(result->selections.size(), 1u);
                      }
                      ++num_answered;
                    });
  }
  steps_ = nullptr;
  EXPECT_EQ(num_answered, 10);
}

TEST_F(StepDrafterTest, AnotherVocabularyIsRefused) {
  ToyModelOptions other = DraftedModel();
  other.vocab_size += 1;
  EXPECT_THAT(ModelExecutor::Create(
                  std::make_shared<ToyModel>(DraftedModel()), MakePool(1),
                  {.draft_model = std::make_shared<ToyModel>(other)})
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a vocabulary of")));
}

}  // namespace
}  // namespace espalier::testing
