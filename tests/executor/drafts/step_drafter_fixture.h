// Fixture of the tests of StepDrafter: a toy model that drafts for itself,
// the requests of a test, and counters of drafts in plans.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "executor/host/model_executor.h"
#include "request/request.h"
#include "tests/batcher/toy_requests.h"
#include "tests/executor/drive.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"
#include "tests/unowned.h"

namespace espalier::testing {

inline ToyModelOptions DraftedModel() {
  ToyModelOptions options;
  options.num_tokens_read = 2;
  options.has_shareable_pages = true;
  options.num_pages = 400;
  return options;
}

// An executor of `model` that runs ahead, for which `draft_model` drafts.
inline std::shared_ptr<ModelExecutor> MakeDrafting(
    std::shared_ptr<Model> model = std::make_shared<ToyModel>(DraftedModel()),
    std::shared_ptr<Model> draft_model =
        std::make_shared<ToyModel>(DraftedModel())) {
  auto steps = ModelExecutor::Create(
      std::move(model), MakePool(1),
      {.run_ahead = true, .draft_model = std::move(draft_model)});
  EXPECT_OK(steps.status());
  return *std::move(steps);
}

class StepDrafterTest : public ::testing::Test {
 protected:
  std::vector<Request> AnyRequests(int count, uint32_t seed) const {
    std::vector<Request> requests =
        RandomRequests(count, seed, steps_->description());
    std::mt19937 random(seed);
    for (Request& request : requests) {
      if (!request.params.allowed_sequences && random() % 2 == 0) {
        request.params.max_new_tokens = 30;
      }
    }
    return requests;
  }

  void Speculate(SpeculationMode mode, std::vector<Request>* requests) {
    std::mt19937 random(1);
    for (Request& request : *requests) {
      if (!CanSpeculate(request.params) || random() % 5 == 0) continue;
      request.params.speculate = {
          .method = SpeculationMethod::kDraft,
          .num_tokens = 1 + static_cast<int>(random() % 8),
          .mode = mode};
      EXPECT_OK(ValidateRequest(steps_->description(), &request));
    }
  }

  std::shared_ptr<StepExecutor> steps_ = MakeDrafting();
};

// Accepted tokens of drafts, by method.
struct AcceptedTokens {
  int64_t of_samples = 0;
  int64_t of_beams = 0;
  int64_t total() const { return of_samples + of_beams; }
};

// Checks that `together` are the results of the requests alone and without
// drafts. Adds the accepted tokens.
inline void ExpectAsAlone(std::vector<Request> requests,
                          const Answers& together, AcceptedTokens* accepted) {
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].params.speculate.reset();
    const auto alone = RunAlone(DraftedModel(), requests[i]);
    ASSERT_EQ(alone.status(), together[i].status());
    if (!alone.ok()) continue;
    EXPECT_TRUE(SameHypotheses(*alone, *together[i])) << "request " << i;
    (IsBeamSearch(requests[i].params) ? accepted->of_beams
                                      : accepted->of_samples) +=
        together[i]->usage.num_accepted_tokens;
  }
}

// Counts plans by their drafts.
class DraftCounter : public StepExecutor {
 public:
  explicit DraftCounter(StepExecutor* steps) : steps_(steps) {}

  const ModelDescription& description() const override {
    return steps_->description();
  }
  int max_plans_in_flight() const override {
    return steps_->max_plans_in_flight();
  }
  void Execute(StepPlan plan, Done done) override {
    for (const DraftSequence& sequence : plan.drafting) {
      const DraftTarget& target = sequence.verified_by;
      ++(sequence.search != nullptr ? num_of_beams
         : target.plan_row >= 0     ? num_verified_at_once
                                    : num_verified_later);
      if (target.plan_row < 0) continue;
      EXPECT_EQ(plan.rows[target.plan_row].num_tokens, 1 + sequence.num_tokens);
      EXPECT_EQ(plan.selections[target.selection].request, sequence.request);
    }
    for (const PlanSelection& selection : plan.selections) {
      const DrawSelection* const draws = selection.as_draws();
      num_ahead += draws != nullptr && draws->drafts.is_ahead;
    }
    steps_->Execute(std::move(plan), std::move(done));
  }

  int num_of_beams = 0;
  int num_ahead = 0;
  int num_verified_at_once = 0;
  int num_verified_later = 0;

 private:
  StepExecutor* const steps_;
};

}  // namespace espalier::testing
