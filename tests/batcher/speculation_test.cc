// Speculation changes no result: requests that draft, of every kind and among
// others, have the hypotheses that they have alone and without drafts, to the
// bit, in any room for pages and tokens; also where groups that are preempted
// go to host memory, with drafts that are not answered in their pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "executor/drafts/draft_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

struct SpeculationCase {
  SpeculationMethod method = SpeculationMethod::kNone;
  int num_tokens_read = 2;  // by the model; if few, its texts repeat
  int num_pages = 400;
  int max_step_tokens = 128;
  int plans_in_flight = 1;
  uint64_t draft_seed = 1;  // the draft model's; the model's is 1
  int num_host_slots = 0;
};

class SpeculationTest : public ::testing::TestWithParam<SpeculationCase> {
 protected:
  SpeculationTest() {
    options_.num_tokens_read = GetParam().num_tokens_read;
    options_.num_pages = GetParam().num_pages;
    options_.has_shareable_pages = true;
    options_.num_host_slots = GetParam().num_host_slots;
    options_.eos_boost = -1;
    model_ = std::make_unique<ToyModel>(options_);
    description_ = model_->description();
    if (GetParam().method != SpeculationMethod::kDraft) return;
    ToyModelOptions draft = options_;
    draft.seed = GetParam().draft_seed;
    draft.page_size = 5;
    draft.num_pages = 100;
    draft.num_host_slots = 0;
    draft_ = *DraftModel::Create(std::make_shared<ToyModel>(draft),
                                 *ThreadPool::Create(1));
    description_.limits.max_drafted_length = std::numeric_limits<int>::max();
  }

  // Runs all together and returns their results.
  std::vector<absl::StatusOr<Result>> RunTogether(
      std::vector<Request> requests) {
    Scheduler scheduler(description_,
                        {.max_step_tokens = GetParam().max_step_tokens,
                         .validate_steps = true});
    std::vector<absl::StatusOr<Result>> results(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_OK(ValidateRequest(description_, &requests[i]));
      scheduler.Submit(RequestId{static_cast<int64_t>(i)},
                       PreparedRequest(requests[i]),
                       [&results, i](auto r) { results[i] = std::move(r); });
    }
    RunToEnd(
        scheduler, *model_, [](int) {}, GetParam().plans_in_flight,
        draft_.get());
    ExpectNothingHeld(scheduler);
    num_loaded_ += scheduler.stats().num_tokens_loaded_again;
    if (draft_ != nullptr) {
      EXPECT_EQ(draft_->num_sequences(), 0);
      EXPECT_EQ(draft_->pages().num_held(), 0);
    }
    return results;
  }

  ToyModelOptions options_;
  std::unique_ptr<ToyModel> model_;
  std::unique_ptr<DraftModel> draft_;  // or null
  ModelDescription description_;
  int64_t num_loaded_ = 0;  // tokens
};

bool MaySpeculate(const GenerationParams& params) {
  return !IsBeamSearch(params) ||
         !(params.do_sample || params.stochastic || params.num_beam_groups > 1);
}

TEST_P(SpeculationTest, ChangesNoResult) {
  int64_t num_accepted = 0;
  int64_t num_drafted = 0;
  for (uint32_t seed = 1; seed <= testing::Cases(12u, 3u); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<Request> requests = RandomRequests(40, seed, description_);
    std::mt19937 random(seed);
    std::vector<absl::StatusOr<Result>> alone;
    for (Request& request : requests) {
      GenerationParams& params = request.params;
      if (!params.allowed_sequences.has_value() && random() % 2 == 0) {
        params.max_new_tokens = 30;
      }
      alone.push_back(RunAlone(options_, request));
      if (!MaySpeculate(params) || random() % 5 == 0) continue;
      params.speculate = {.method = GetParam().method,
                          .num_tokens = 1 + static_cast<int>(random() % 8),
                          .mode = SpeculationMode::kCoupled};
    }
    const auto together = RunTogether(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      ASSERT_EQ(alone[i].status(), together[i].status());
      if (!alone[i].ok()) continue;
      EXPECT_TRUE(SameHypotheses(*alone[i], *together[i]));
      // Beams are counted in beam_speculation_test.cc.
      if (IsBeamSearch(requests[i].params)) continue;
      const Usage& usage = together[i]->usage;
      EXPECT_LE(usage.num_accepted_tokens, usage.num_drafted_tokens);
      num_accepted += usage.num_accepted_tokens;
      num_drafted += usage.num_drafted_tokens;
    }
  }
  EXPECT_GT(num_drafted, testing::Cases(500, 100));
  EXPECT_GT(num_accepted, num_drafted / 20);
  if (GetParam().num_host_slots > 0) {
    EXPECT_GT(num_loaded_, testing::Cases(500, 100));
  }
  RecordProperty("drafted", static_cast<int>(num_drafted));
  RecordProperty("accepted", static_cast<int>(num_accepted));
}

std::string NameOfCase(const SpeculationCase& c) {
  return std::string(NameOf(c.method)) + "_reads" +
         std::to_string(c.num_tokens_read) + "_pages" +
         std::to_string(c.num_pages) + "_step" +
         std::to_string(c.max_step_tokens) + "_ahead" +
         std::to_string(c.plans_in_flight) + "_seed" +
         std::to_string(c.draft_seed) + "_slots" +
         std::to_string(c.num_host_slots);
}

using Method = SpeculationMethod;
INSTANTIATE_TEST_SUITE_P(
    All, SpeculationTest,
    ::testing::Values(
        SpeculationCase{.method = Method::kNgram},
        SpeculationCase{.method = Method::kNgram, .num_pages = 60},
        SpeculationCase{.method = Method::kNgram, .max_step_tokens = 9},
        SpeculationCase{.method = Method::kNgram, .plans_in_flight = 2},
        SpeculationCase{.method = Method::kSuffix},
        SpeculationCase{
            .method = Method::kSuffix, .num_pages = 60, .plans_in_flight = 2},
        SpeculationCase{.method = Method::kDraft},
        SpeculationCase{.method = Method::kDraft, .num_pages = 60},
        SpeculationCase{.method = Method::kDraft, .draft_seed = 2},
        SpeculationCase{.method = Method::kDraft,
                        .num_tokens_read = 1000,
                        .plans_in_flight = 2},
        SpeculationCase{
            .method = Method::kNgram, .num_pages = 60, .num_host_slots = 200},
        SpeculationCase{.method = Method::kNgram,
                        .num_pages = 60,
                        .plans_in_flight = 2,
                        .num_host_slots = 200},
        SpeculationCase{.method = Method::kSuffix,
                        .num_pages = 60,
                        .plans_in_flight = 2,
                        .num_host_slots = 9},
        SpeculationCase{
            .method = Method::kDraft, .num_pages = 60, .num_host_slots = 200},
        SpeculationCase{.method = Method::kDraft,
                        .num_pages = 60,
                        .plans_in_flight = 2,
                        .draft_seed = 2,
                        .num_host_slots = 200},
        SpeculationCase{.method = Method::kDraft, .plans_in_flight = 2},
        SpeculationCase{.method = Method::kDraft,
                        .max_step_tokens = 9,
                        .plans_in_flight = 2,
                        .draft_seed = 2},
        SpeculationCase{.method = Method::kDraft,
                        .num_pages = 60,
                        .plans_in_flight = 2,
                        .num_host_slots = 200}),
    [](const auto& test) { return NameOfCase(test.param); });

}  // namespace
}  // namespace espalier
