#include "request/validate_timestamps.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "request/request.h"
#include "tests/request/json/check_line.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

// Returns the error of a request with timestamps after `change`.
std::string ErrorOf(const std::function<void(GenerationParams&)>& change,
                    bool selects_on_host = true) {
  ModelDescription model = testing::EnFr();
  model.selects_on_host = selects_on_host;
  Request request{{1, 4}, {}};
  request.params.timestamps = {
      .first_time = 4500, .end = 2, .no_timestamps = 4499};
  change(request.params);
  return std::string(ValidateRequest(model, &request).message());
}

TEST(ValidateTimestampsTest, TokensAreInTheirOrder) {
  EXPECT_EQ(ErrorOf([](auto& p) { p.timestamps->max_initial_step = 0; }), "");
  EXPECT_EQ(ErrorOf([](auto& p) { p.timestamps->max_initial_step = -1; }),
            "timestamps.max_initial_step must be at least 0, got -1");
  EXPECT_EQ(ErrorOf([](auto& p) { p.timestamps->first_time = 6000; }),
            "timestamps.first_time must be at most 5999 (a token id), got "
            "6000");
  EXPECT_EQ(ErrorOf([](auto& p) { p.timestamps->end = 4500; }),
            "timestamps.end must be at most 4499 (below "
            "timestamps.first_time), got 4500");
  EXPECT_EQ(ErrorOf([](auto& p) { p.timestamps->no_timestamps = -3; }),
            "timestamps.no_timestamps must be at least 0, got -3");
}

TEST(ValidateTimestampsTest, WhatHasNoMeaningBesideThemIsRefused) {
  EXPECT_EQ(ErrorOf([](auto& p) {
              p.num_beams = 5;
              p.suppress_tokens = {7};
              p.repetition_penalty = 1.3;
              p.speculate = {.method = SpeculationMethod::kNone};
            }),
            "");
  EXPECT_EQ(ErrorOf([](auto& p) {
              p.num_beams = 4;
              p.num_beam_groups = 2;
            }),
            "num_beam_groups must be 1 with timestamps, got 2");
  EXPECT_EQ(ErrorOf([](auto& p) {
              p.num_beams = 4;
              p.stochastic = true;
            }),
            "stochastic must be false with timestamps, got true");
  EXPECT_EQ(ErrorOf([](auto& p) {
              p.num_beams = 4;
              p.do_sample = true;
            }),
            "do_sample must be false with timestamps and num_beams above 1, "
            "got true");
  EXPECT_EQ(ErrorOf([](auto& p) { p.forced_eos_token_id = {2}; }),
            "forced_eos_token_id must be unset with timestamps, got a value");
  EXPECT_EQ(ErrorOf([](auto& p) {
              p.allowed_sequences = {{{5, 6}}};
            }),
            "allowed_sequences must be unset with timestamps, got a value");
  EXPECT_EQ(ErrorOf([](auto& p) {
              p.speculate = {.method = SpeculationMethod::kNgram};
            }),
            "speculate.method must be \"off\" with timestamps, got \"ngram\"");
}

TEST(ValidateTimestampsTest, WhereAGpuSelectsTheyStandBesideBansAlone) {
  const auto error_of = [](const std::function<void(GenerationParams&)>& to) {
    return ErrorOf(to, /*selects_on_host=*/false);
  };
  EXPECT_EQ(error_of([](auto& p) {
              p.num_beams = 5;
              p.renormalize_logits = true;
              p.suppress_tokens = {7};
              p.begin_suppress_tokens = {8};
              p.bad_words_ids = {{4}, {5, 6}};
              p.no_repeat_ngram_size = 3;
              p.min_new_tokens = 2;
            }),
            "");
  EXPECT_EQ(error_of([](auto& p) {
              p.do_sample = true;
              p.best_of = 5;
            }),
            "");
  EXPECT_EQ(error_of([](auto& p) { p.repetition_penalty = 1.5; }),
            "repetition_penalty must be 1 with timestamps where a GPU selects, "
            "got 1.5");
  EXPECT_EQ(error_of([](auto& p) { p.presence_penalty = 0.5; }),
            "presence_penalty must be 0 with timestamps where a GPU selects, "
            "got 0.5");
  EXPECT_EQ(error_of([](auto& p) {
              p.logit_bias = {{7, 1.5}};
            }),
            "logit_bias must be unset with timestamps where a GPU selects, got "
            "a value");
  EXPECT_EQ(error_of([](auto& p) { p.logprobs = 0; }),
            "logprobs must be unset with timestamps where a GPU selects, got a "
            "value");
}

// A default of the engine, such as its draft model, is not for them.
TEST(ValidateTimestampsTest, TextsWithThemDraftNothing) {
  GenerationParams params;
  EXPECT_TRUE(CanSpeculate(params));
  params.timestamps.emplace();
  EXPECT_FALSE(CanSpeculate(params));
}

}  // namespace
}  // namespace espalier
