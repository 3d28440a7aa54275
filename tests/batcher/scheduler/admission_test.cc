#include "batcher/scheduler/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

PreparedRequest Prepared(int num_prompt_tokens, int num_beams) {
  Request request;
  request.prompt_tokens.resize(num_prompt_tokens);
  request.params.num_beams = num_beams;
  request.params.max_new_tokens = 5;
  request.params.eos_token_id = std::vector<int64_t>();
  return PreparedRequest(std::move(request));
}

// A pool of 10 pages of 4 tokens, 3 requests and 6 rows a step.
class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() {
    model_.vocab_size = 100;
    model_.limits.max_candidates = 20;
  }
  Admission Make() const {
    return Admission(model_, {.max_running = 3, .max_step_tokens = 6}, &pool_);
  }

  PagePool pool_{10, 4};
  ModelDescription model_;
};

TEST_F(AdmissionTest, NeedsAreTheWorstCase) {
  PreparedRequest prepared = Prepared(4, 3);
  prepared.request.params.logprobs = 2;
  const RequestNeeds needs = Make().NeedsOf(prepared);
  EXPECT_EQ(needs.num_pages, 1 + 3 * 1);
  EXPECT_EQ(needs.num_sequences, 3);
  EXPECT_EQ(needs.num_candidates, 6);
  EXPECT_EQ(needs.num_best, 12);
  EXPECT_EQ(needs.num_edits, 0);
}

TEST_F(AdmissionTest, WhatNeverFitsIsRefusedWithTheFigures) {
  const Admission admission = Make();
  const auto check = [&](const PreparedRequest& prepared) {
    return admission.CheckFits(prepared, admission.NeedsOf(prepared));
  };
  EXPECT_OK(check(Prepared(4, 9)));
  const absl::Status too_long = check(Prepared(50, 1));
  EXPECT_THAT(too_long, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("it needs 14 pages of 4 tokens")));
  EXPECT_TRUE(too_long.GetPayload(kTooFewPages).has_value());
  model_.limits.max_candidates = 7;
  const Admission narrow = Make();
  const PreparedRequest wide = Prepared(1, 4);
  const absl::Status too_wide = narrow.CheckFits(wide, narrow.NeedsOf(wide));
  EXPECT_THAT(too_wide, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("ranks 8 candidates")));
  EXPECT_FALSE(too_wide.GetPayload(kTooFewPages).has_value());
}

PreparedRequest Speculating(Request request) {
  request.params.speculate = {.method = SpeculationMethod::kNgram,
                              .num_tokens = 4};
  return PreparedRequest(std::move(request));
}

// Three beams have six candidates a step.
TEST_F(AdmissionTest, DraftsCountWhereThereAreAny) {
  const Request narrow = Prepared(4, 3).request;
  const Admission admission = Make();
  EXPECT_EQ(admission.NeedsOf(Speculating(narrow)).num_candidates, 5 * 6);
  Request stops = narrow;
  stops.params.stop = {"x"};
  EXPECT_EQ(admission.NeedsOf(Speculating(stops)).num_candidates, 6);
  Request restricted = narrow;
  restricted.params.allowed_sequences = {{{1}, {2}}};
  EXPECT_EQ(admission.NeedsOf(Speculating(restricted)).num_candidates, 3 + 2);
  const Request wide = Prepared(1, 20).request;
  EXPECT_EQ(admission.NeedsOf(Speculating(wide)).num_candidates, 40);
}

TEST_F(AdmissionTest, NoRequestIsRefusedForItsDrafts) {
  const auto num_tokens_of = [&](int max_candidates, int max_best) {
    model_.limits.max_candidates = max_candidates;
    model_.limits.max_best_tokens = max_best;
    const Admission admission = Make();
    Request request = Prepared(4, 3).request;
    request.params.logprobs = 2;
    PreparedRequest prepared = Speculating(std::move(request));
    admission.FitDrafts(&prepared);
    EXPECT_OK(admission.CheckFits(prepared, admission.NeedsOf(prepared)));
    const auto& speculate = prepared.request.params.speculate;
    EXPECT_EQ(speculate.has_value(), prepared.drafter != nullptr);
    return speculate.has_value() ? speculate->num_tokens : 0;
  };
  EXPECT_EQ(num_tokens_of(30, 60), 4);
  EXPECT_EQ(num_tokens_of(29, 60), 3);
  EXPECT_EQ(num_tokens_of(30, 59), 3);
  EXPECT_EQ(num_tokens_of(12, 60), 1);
  EXPECT_EQ(num_tokens_of(11, 60), 0);
  EXPECT_EQ(num_tokens_of(30, 12), 0);
}

TEST_F(AdmissionTest, ARequestRunsBesideOthersWhileAllFit) {
  const Admission admission = Make();
  const RequestNeeds next = {.num_pages = 1, .num_sequences = 2};
  EXPECT_TRUE(admission.CanAdmit(next, {.num_sequences = 4}, 2));
  EXPECT_FALSE(admission.CanAdmit(next, {.num_sequences = 4}, 3));
  EXPECT_FALSE(admission.CanAdmit(next, {.num_sequences = 5}, 2));
  EXPECT_FALSE(
      admission.CanAdmit({.num_candidates = 11}, {.num_candidates = 10}, 1));
}

TEST_F(AdmissionTest, BesideAWideRequestThereIsRoomForAQuarterOfAStep) {
  model_.limits.max_beams = 29;
  const Admission admission(model_, {.max_running = 9, .max_step_tokens = 20},
                            &pool_);
  const auto fit = [&](std::vector<int> widths) {
    RequestNeeds running;
    for (const int width : widths) {
      running += {.num_sequences = width, .num_widest = width};
    }
    const int last = widths.back();
    running.num_sequences -= last;
    return admission.CanAdmit({.num_sequences = last, .num_widest = last},
                              running, static_cast<int>(widths.size()) - 1);
  };
  EXPECT_TRUE(fit({10, 10}));
  EXPECT_FALSE(fit({10, 10, 1}));
  EXPECT_TRUE(fit({15, 5}));
  EXPECT_FALSE(fit({15, 6}));
  EXPECT_TRUE(fit({16, 5}));
  EXPECT_TRUE(fit({20, 3, 2}));
  EXPECT_FALSE(fit({20, 3, 3}));
  EXPECT_TRUE(fit({3, 2, 24}));  // the wide one comes last
  EXPECT_FALSE(fit({3, 3, 22}));
  EXPECT_FALSE(fit({25, 5}));  // max_beams
}

TEST_F(AdmissionTest, AloneARequestRunsHoweverManyRowsItHas) {
  EXPECT_TRUE(Make().CanAdmit({.num_sequences = 100}, {}, 0));
}

WaitingRequest WaitingWithId(int64_t id, int64_t priority = 0,
                             int64_t step = 0) {
  return {.turn = Turn::Of(priority, step, RequestId{id}),
          .prepared = Prepared(1, 1),
          .needs = {.num_pages = id},
          .done = [](const absl::StatusOr<Result>&) {},
          .watcher = nullptr};
}

TEST(WaitingRequestsTest, RequestsLeaveInTheOrderOfArrivalOrById) {
  WaitingRequests waiting;
  EXPECT_TRUE(waiting.empty());
  for (int64_t id = 1; id <= 5; ++id) waiting.Push(WaitingWithId(id));
  EXPECT_EQ(waiting.size(), 5);
  EXPECT_EQ(waiting.front().turn.id, RequestId{1});
  EXPECT_EQ(waiting.TakeFront().needs.num_pages, 1);
  EXPECT_EQ(waiting.Take(RequestId{3})->needs.num_pages, 3);
  EXPECT_FALSE(waiting.Take(RequestId{3}).has_value());
  EXPECT_FALSE(waiting.Take(RequestId{1}).has_value());
  EXPECT_EQ(waiting.TakeFront().turn.id, RequestId{2});
  const std::vector<WaitingRequest> rest = waiting.TakeAll();
  EXPECT_EQ(rest.size(), 2);
  EXPECT_EQ(rest.front().turn.id, RequestId{4});
  EXPECT_TRUE(waiting.empty());
  EXPECT_FALSE(waiting.Take(RequestId{5}).has_value());
}

TEST(WaitingRequestsTest, LowerPrioritiesComeFirst) {
  WaitingRequests waiting;
  waiting.Push(WaitingWithId(1, 1));
  waiting.Push(WaitingWithId(2, 0));
  waiting.Push(WaitingWithId(3, -1));
  waiting.Push(WaitingWithId(4, 0));
  for (const int64_t id : {3, 2, 4, 1}) {
    EXPECT_EQ(waiting.TakeFront().turn.id, RequestId{id});
  }
}

TEST(TurnTest, WhoHasWaitedLongEnoughComesBeforeAHigherPriority) {
  const Turn low = Turn::Of(2, 100, RequestId{1});
  EXPECT_LT(Turn::Of(0, 100, RequestId{2}), low);
  EXPECT_LT(low, Turn::Of(0, 100 + 2 * Turn::kStepsPerPriority, RequestId{3}));
}

TEST(TurnTest, PrioritiesBeyondAllMeasureStayInOrder) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_LT(Turn::Of(kMin, 0, RequestId{2}), Turn::Of(0, 0, RequestId{1}));
  EXPECT_LT(Turn::Of(0, kMax, RequestId{1}),
            Turn::Of(kMax, kMax, RequestId{2}));
}

}  // namespace
}  // namespace espalier
