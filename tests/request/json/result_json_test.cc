#include "request/json/result_json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace espalier {
namespace {

TEST(ResultJsonTest, ResultsAreWrittenAsTheFormatSays) {
  Result result;
  result.hypotheses = {{{7, 2}, -0.25f, -0.5f, FinishReason::kEos},
                       {{7, 8}, -0.75f, -1.5f, FinishReason::kLength}};
  result.usage = {3, 0, 4, 2};
  const std::vector<std::string> texts = {"é", "ab"};
  EXPECT_EQ(WriteResultLine(R"("x")", result, texts),
            R"({"id": "x", "hypotheses": [{"tokens": [7, 2], "text": "é", )"
            R"("score": -0.25, "cum_log_prob": -0.5, "finish_reason": "eos"}, )"
            R"({"tokens": [7, 8], "text": "ab", "score": -0.75, )"
            R"("cum_log_prob": -1.5, "finish_reason": "length"}], )"
            R"("usage": {"prompt_tokens": 3, "cached_tokens": 0, )"
            R"("generated_tokens": 4, "steps": 2}})");
  EXPECT_EQ(WriteResultLine("1", result, {}).find("text"), std::string::npos);
}

TEST(ResultJsonTest, WhatWasAskedForIsWrittenBesideTheResult) {
  Result result;
  result.hypotheses = {
      {.tokens = {7},
       .score = -0.25f,
       .cum_log_prob = -0.25f,
       .finish_reason = FinishReason::kStop,
       .logprobs = {{7, -0.25f, 2, {{9, -0.125f}, {7, -0.25f}}}}}};
  result.usage = {2, 0, 1, 1};
  result.seed = 18446744073709551615u;
  result.deadline_passed = true;
  result.threshold = -3.5;
  result.prompt_logprobs = {{4, -1.5f, 3, {}}};
  EXPECT_EQ(
      WriteResultLine(R"("x")", result, {}),
      R"({"id": "x", "hypotheses": [{"tokens": [7], "score": -0.25, )"
      R"("cum_log_prob": -0.25, "finish_reason": "stop", "logprobs": )"
      R"([{"token": 7, "log_prob": -0.25, "rank": 2, "top": )"
      R"([{"token": 9, "log_prob": -0.125}, {"token": 7, "log_prob": -0.25}])"
      R"(}]}], "usage": {"prompt_tokens": 2, "cached_tokens": 0, )"
      R"("generated_tokens": 1, "steps": 1}, "seed": 18446744073709551615, )"
      R"("deadline_passed": true, "threshold": -3.5, )"
      R"("prompt_logprobs": [null, {"token": 4, "log_prob": -1.5, )"
      R"("rank": 3, "top": []}]})");
}

TEST(ResultJsonTest, DefaultsOfTheModelAreThereWhereSomeWereTaken) {
  Result result;
  result.usage = {.defaults = {{"temperature", "0.6"}, {"top_k", "20"}}};
  EXPECT_EQ(WriteResultLine("1", result, {}),
            R"({"id": 1, "hypotheses": [], "usage": {"prompt_tokens": 0, )"
            R"("cached_tokens": 0, "generated_tokens": 0, "steps": 0, )"
            R"("defaults": {"temperature": 0.6, "top_k": 20}}})");
}

TEST(ResultJsonTest, DraftsAreCountedWhereThereWereAny) {
  Result result;
  result.usage = {.num_drafted_tokens = 9, .num_accepted_tokens = 4};
  EXPECT_EQ(WriteResultLine("1", result, {}),
            R"({"id": 1, "hypotheses": [], "usage": {"prompt_tokens": 0, )"
            R"("cached_tokens": 0, "generated_tokens": 0, "steps": 0, )"
            R"("drafted_tokens": 9, "accepted_tokens": 4}})");
}

}  // namespace
}  // namespace espalier
