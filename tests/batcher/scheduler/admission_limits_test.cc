#include "batcher/scheduler/admission_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
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
class AdmissionLimitsTest : public ::testing::Test {
 protected:
  AdmissionLimitsTest() {
    model_.vocab_size = 100;
    model_.limits.max_candidates = 20;
  }
  AdmissionLimits Make() const {
    return AdmissionLimits(model_, {.max_running = 3, .max_step_tokens = 6},
                           &pool_);
  }

  PagePool pool_{10, 4};
  ModelDescription model_;
};

TEST_F(AdmissionLimitsTest, NeedsAreTheWorstCase) {
  PreparedRequest prepared = Prepared(4, 3);
  prepared.request.params.logprobs = 2;
  const RequestNeeds needs = Make().NeedsOf(prepared);
  EXPECT_EQ(needs.num_pages, 1 + 3 * 1);
  EXPECT_EQ(needs.num_sequences, 3);
  EXPECT_EQ(needs.num_candidates, 6);
  EXPECT_EQ(needs.num_best, 12);
  EXPECT_EQ(needs.num_edits, 0);
}

TEST_F(AdmissionLimitsTest, WhatNeverFitsIsRefusedWithTheFigures) {
  const AdmissionLimits admission = Make();
  const auto check = [&](const PreparedRequest& prepared) {
    return admission.CheckFits(prepared, admission.NeedsOf(prepared));
  };
  EXPECT_OK(check(Prepared(4, 9)));
  const absl::Status too_long = check(Prepared(50, 1));
  EXPECT_THAT(too_long, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("it needs 14 pages of 4 tokens")));
  EXPECT_TRUE(too_long.GetPayload(kTooFewPages).has_value());
  model_.limits.max_candidates = 7;
  const AdmissionLimits narrow = Make();
  const PreparedRequest wide = Prepared(1, 4);
  const absl::Status too_wide = narrow.CheckFits(wide, narrow.NeedsOf(wide));
  EXPECT_THAT(too_wide, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("ranks 8 candidates")));
  EXPECT_FALSE(too_wide.GetPayload(kTooFewPages).has_value());
}

// All tokens but the last are aligned: 3 tokens, 2 heads, 5 positions.
TEST_F(AdmissionLimitsTest, ScoresOfAttentionHaveALimitAloneAndTogether) {
  Request request = Prepared(4, 1).request;
  request.params.max_new_tokens = 0;
  request.params.prompt_logprobs = 0;
  request.alignment = std::make_shared<const AlignmentQuery>(AlignmentQuery{
      .heads = {{0, 0}, {1, 0}}, .num_positions = 5, .num_text_tokens = 9});
  const PreparedRequest prepared(request);
  model_.limits.max_attention_scores = 30;
  const AdmissionLimits fits = Make();
  const RequestNeeds needs = fits.NeedsOf(prepared);
  EXPECT_EQ(needs.num_attention_scores, 30);
  EXPECT_OK(fits.CheckFits(prepared, needs));
  EXPECT_TRUE(fits.CanAdmit(needs, {}, 1));
  EXPECT_FALSE(fits.CanAdmit(needs, {.num_attention_scores = 1}, 1));
  model_.limits.max_attention_scores = 29;
  EXPECT_THAT(Make().CheckFits(prepared, needs),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("its alignment has 30 scores of attention (2 "
                                 "heads), there is room for 29")));
}

PreparedRequest Speculating(Request request) {
  request.params.speculate = {.method = SpeculationMethod::kNgram,
                              .num_tokens = 4};
  return PreparedRequest(std::move(request));
}

// Three beams have six candidates a step.
TEST_F(AdmissionLimitsTest, DraftsCountWhereThereAreAny) {
  const Request narrow = Prepared(4, 3).request;
  const AdmissionLimits admission = Make();
  EXPECT_EQ(admission.NeedsOf(Speculating(narrow)).num_candidates, 5 * 6);
  Request stops = narrow;
  stops.params.stop = {"x"};
  EXPECT_EQ(admission.NeedsOf(Speculating(stops)).num_candidates, 6);
  Request restricted = narrow;
  restricted.params.allowed_sequences = {{1}, {2}, {3, 4}};
  EXPECT_EQ(admission.NeedsOf(Speculating(restricted)).num_candidates, 3 + 2);
  // If all sequences end, none takes the place of one that continues.
  restricted.params.allowed_sequences = {{{1}, {2}}};
  EXPECT_EQ(admission.NeedsOf(Speculating(restricted)).num_candidates, 3);
  const Request wide = Prepared(1, 20).request;
  EXPECT_EQ(admission.NeedsOf(Speculating(wide)).num_candidates, 40);
}

TEST_F(AdmissionLimitsTest, NoRequestIsRefusedForItsDrafts) {
  const auto num_tokens_of = [&](int max_candidates, int max_best) {
    model_.limits.max_candidates = max_candidates;
    model_.limits.max_best_tokens = max_best;
    const AdmissionLimits admission = Make();
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

TEST_F(AdmissionLimitsTest, ARequestRunsBesideOthersWhileAllFit) {
  const AdmissionLimits admission = Make();
  const RequestNeeds next = {.num_pages = 1, .num_sequences = 2};
  EXPECT_TRUE(admission.CanAdmit(next, {.num_sequences = 4}, 2));
  EXPECT_FALSE(admission.CanAdmit(next, {.num_sequences = 4}, 3));
  EXPECT_FALSE(admission.CanAdmit(next, {.num_sequences = 5}, 2));
  EXPECT_FALSE(
      admission.CanAdmit({.num_candidates = 11}, {.num_candidates = 10}, 1));
}

TEST_F(AdmissionLimitsTest, BesideAWideRequestThereIsRoomForAQuarterOfAStep) {
  model_.limits.max_beams = 29;
  const AdmissionLimits admission(
      model_, {.max_running = 9, .max_step_tokens = 20}, &pool_);
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

TEST_F(AdmissionLimitsTest, AloneARequestRunsHoweverManyRowsItHas) {
  EXPECT_TRUE(Make().CanAdmit({.num_sequences = 100}, {}, 0));
}

}  // namespace
}  // namespace espalier
