// Options at the ends of float32, alone and together: a request is refused with
// the name of one of them, or its scores are numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "beam/strategy/selection_options.h"
#include "exec_request/model.h"
#include "tests/beam/search_alone.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::SearchAsTheEngine;
using testing::StatusIs;
using testing::ToyLogitsModel;

constexpr int kExtremeVocabSize = 12;

double Extreme(std::mt19937& random) {
  constexpr double kSizes[] = {1e-45, 1e-40, 1e-38, 1e-33, 1e-20,       1e-4,
                               0.5,   1.0,   2.0,   1e4,   1e20,        1e33,
                               1e36,  1e37,  1e38,  3e38,  3.4028234e38};
  return kSizes[random() % std::size(kSizes)];
}

double SignedExtreme(std::mt19937& random) {
  return random() % 2 == 0 ? Extreme(random) : -Extreme(random);
}

GenerationParams AnySearchParams(std::mt19937& random) {
  GenerationParams params;
  params.seed = random();
  switch (random() % 6) {
    case 0:
      return params;
    case 1:
      params.do_sample = true;
      params.num_return_sequences = 3;
      return params;
    case 2:
      params.do_sample = true;
      break;
    case 3:
      params.stochastic = true;
      break;
    case 4:
      params.num_beam_groups = 2;
      params.diversity_penalty = Extreme(random);
      break;
    default:
      break;
  }
  params.num_beams = params.num_return_sequences = 4;
  return params;
}

Request AnyRequest(std::mt19937& random) {
  Request request = {{1, 4}, AnySearchParams(random)};
  GenerationParams& params = request.params;
  params.ignore_eos = random() % 2 == 0;
  params.max_new_tokens = 1 + random() % 8;
  const auto sometimes = [&] { return random() % 3 == 0; };
  const bool draws = params.do_sample || params.stochastic;
  if (draws && sometimes()) params.temperature = Extreme(random);
  if (sometimes()) params.repetition_penalty = Extreme(random);
  if (sometimes()) params.frequency_penalty = SignedExtreme(random);
  if (sometimes()) params.presence_penalty = SignedExtreme(random);
  if (!params.stochastic && sometimes()) {
    params.length_penalty = static_cast<double>(random() % 120) - 60;
  }
  for (int n = random() % 3; n > 0; --n) {
    params.logit_bias.push_back({n + random() % 8, SignedExtreme(random)});
  }
  if (params.logit_bias.size() == 2 &&
      params.logit_bias[0].first == params.logit_bias[1].first) {
    params.logit_bias.Edit().pop_back();
  }
  if (random() % 4 == 0) {
    params.allowed_token_ids = {5};
    if (random() % 2 == 0) params.allowed_token_ids->push_back(7);
  }
  return request;
}

TEST(ExtremeScoresTest, WhatIsAcceptedHasScores) {
  ModelDescription description;
  description.vocab_size = kExtremeVocabSize;
  description.max_context = 1024;
  description.eos_token_ids = {2};
  std::mt19937 random(1);
  int num_accepted = 0, num_refused = 0, num_banned = 0;
  const int num_requests = testing::Cases(10'000, 2'000);
  for (int i = 0; i < num_requests; ++i) {
    Request request = AnyRequest(random);
    const absl::Status valid = ValidateRequest(description, &request);
    if (!valid.ok()) {
      EXPECT_THAT(valid,
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           ContainsRegex("^[a-z_]+( of token [0-9]+)? must .*"
                                         "float32.*, got ")));
      ++num_refused;
      continue;
    }
    const auto model = ToyLogitsModel({.vocab_size = kExtremeVocabSize,
                                       .seed = random(),
                                       .eos_token_ids = {2}});
    const absl::StatusOr<Result> answer = SearchAsTheEngine(model, request);
    if (request.params.allowed_token_ids &&
        absl::IsFailedPrecondition(answer.status())) {
      ++num_banned;  // scores too low are bans, here of all that is allowed
      continue;
    }
    ASSERT_OK_AND_ASSIGN(const Result result, answer);
    ++num_accepted;
    EXPECT_FALSE(result.hypotheses.empty());
    for (const Hypothesis& hypothesis : result.hypotheses) {
      EXPECT_TRUE(std::isfinite(hypothesis.score));
      EXPECT_TRUE(std::isfinite(hypothesis.cum_log_prob));
    }
  }
  EXPECT_GT(num_accepted, num_requests / 5);
  EXPECT_GT(num_refused, num_requests / 10);
  EXPECT_LT(num_banned, num_requests / 10);
}

// Usual ways to ban a token, or to change nothing, still work.
TEST(ExtremeScoresTest, WhatOnlyLowersScoresIsAccepted) {
  ModelDescription description;
  description.vocab_size = kExtremeVocabSize;
  description.max_context = 1024;
  for (const double bias : {-100.0, -1e9, -1e30, -3.4028234e38}) {
    for (const int num_beams : {1, 4}) {
      Request request = {{1, 4}, {}};
      request.params.num_beams = num_beams;
      request.params.logit_bias = {{5, bias}};
      request.params.repetition_penalty = 1.3;
      EXPECT_OK(ValidateRequest(description, &request));
    }
  }
}

TEST(ExtremeScoresTest, TheOptionThatIsTooMuchIsNamed) {
  ModelDescription description;
  description.vocab_size = kExtremeVocabSize;
  description.max_context = 1024;
  const auto error = [&](const auto& set) {
    Request request = {{1, 4}, {}};
    request.params.num_beams = 4;
    request.params.max_new_tokens = 20;
    set(request.params);
    return Message(ValidateRequest(description, &request));
  };
  EXPECT_EQ(error([](GenerationParams& p) {
              p.logit_bias = {{5, 3e38}};
            }),
            "logit_bias of token 5 must keep sums of scores within float32 "
            "over 20 tokens (max_new_tokens), got 3e+38");
  EXPECT_THAT(error([](GenerationParams& p) {
                p.logit_bias = {{5, 1e9}};
                p.repetition_penalty = 1e-38;
              }),
              HasSubstr("repetition_penalty must keep sums"));
  EXPECT_THAT(error([](GenerationParams& p) { p.frequency_penalty = -1e37; }),
              HasSubstr("frequency_penalty must keep sums"));
  EXPECT_THAT(error([](GenerationParams& p) {
                p.do_sample = true;
                p.temperature = 1e-40;
              }),
              HasSubstr("temperature must keep sums"));
  EXPECT_THAT(error([](GenerationParams& p) { p.length_penalty = -29; }),
              HasSubstr("length_penalty must keep sums"));
  EXPECT_THAT(error([](GenerationParams& p) {
                p.num_beam_groups = 2;
                p.diversity_penalty = 1e37;  // 2 beams, over 20 tokens
              }),
              HasSubstr("diversity_penalty must keep sums"));
}

}  // namespace
}  // namespace espalier
