#include "exec_request/request_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exec_request/model.h"
#include "tests/exec_request/malformed_requests.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::MalformedRequest;
using ::espalier::testing::MalformedRequests;
using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::Optional;

ModelDescription EnFr() {
  ModelDescription model;
  model.vocab_size = 6000;
  model.max_context = 1024;
  model.eos_token_ids = {2};
  return model;
}

// What the engine would say of a line whose prompt is tokens.
absl::Status Check(const std::string& line) {
  RequestLine parsed = ParseRequestLine(line);
  if (!parsed.body.ok()) return parsed.body.status();
  Request request{parsed.body->prompt_tokens, parsed.body->params};
  return ValidateRequest(EnFr(), &request);
}

TEST(RequestJsonTest, EveryFieldOfALineArrives) {
  const RequestLine line = ParseRequestLine(R"({
      "id": "a-1", "prompt_tokens": [1, 4, 5],
      "params": {"num_beams": 5, "n": 3, "length_penalty": -0.5,
        "early_stopping": "never", "max_tokens": 40, "min_tokens": 2,
        "eos_token_id": [2, 9], "repetition_penalty": 1.5,
        "no_repeat_ngram_size": 3, "bad_words_ids": [[7], [8, 9]],
        "suppress_tokens": [11], "do_sample": false}})");
  ASSERT_OK(line.body);
  EXPECT_EQ(line.id, json::value("a-1"));
  EXPECT_EQ(line.body->prompt, std::nullopt);
  EXPECT_THAT(line.body->prompt_tokens, ElementsAre(1, 4, 5));
  const GenerationParams& params = line.body->params;
  EXPECT_EQ(params.num_beams, 5);
  EXPECT_EQ(params.num_return_sequences, 3);
  EXPECT_EQ(params.length_penalty, -0.5);
  EXPECT_EQ(params.early_stopping, EarlyStopping::kNever);
  EXPECT_THAT(params.max_new_tokens, Optional(40));
  EXPECT_EQ(params.min_new_tokens, 2);
  EXPECT_THAT(params.eos_token_id, Optional(ElementsAre(2, 9)));
  EXPECT_EQ(params.repetition_penalty, 1.5);
  EXPECT_EQ(params.no_repeat_ngram_size, 3);
  EXPECT_THAT(params.bad_words_ids,
              ElementsAre(ElementsAre(7), ElementsAre(8, 9)));
  EXPECT_THAT(params.suppress_tokens, ElementsAre(11));
}

TEST(RequestJsonTest, DefaultsAreTheFormats) {
  RequestLine line = ParseRequestLine(R"({"prompt_tokens": [1, 4, 5]})");
  ASSERT_OK(line.body);
  EXPECT_TRUE(line.id.is_null());
  Request request{line.body->prompt_tokens, line.body->params};
  ASSERT_OK(ValidateRequest(EnFr(), &request));
  EXPECT_EQ(request.params.num_beams, 1);
  EXPECT_EQ(request.params.num_return_sequences, 1);
  EXPECT_EQ(request.params.length_penalty, 1.0);
  EXPECT_EQ(request.params.early_stopping, EarlyStopping::kFalse);
  EXPECT_THAT(request.params.max_new_tokens, Optional(256));
  EXPECT_THAT(request.params.eos_token_id, Optional(ElementsAre(2)));
}

TEST(RequestJsonTest, AnUnsetMaxNewTokensIsWhatTheContextLeaves) {
  Request request{std::vector<TokenId>(1000, 7), {}};
  ASSERT_OK(ValidateRequest(EnFr(), &request));
  EXPECT_THAT(request.params.max_new_tokens, Optional(24));
  request = {std::vector<TokenId>(1024, 7), {}};
  EXPECT_THAT(
      ValidateRequest(EnFr(), &request),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "prompt_tokens: the prompt has 1024 tokens, which leaves no "
               "room in the model's context of 1024"));
}

TEST(RequestJsonTest, EosIdsCountOnce) {
  Request request{{1}, {}};
  request.params.eos_token_id = {{9, 2, 9}};
  ASSERT_OK(ValidateRequest(EnFr(), &request));
  EXPECT_THAT(request.params.eos_token_id, Optional(ElementsAre(2, 9)));
}

TEST(RequestJsonTest, WhatAnExecutorHasNoRoomForIsNamed) {
  ModelDescription model = EnFr();
  model.limits.max_beams = 16;
  model.limits.max_eos_token_ids = 3;
  Request request{{1, 4}, {}};
  request.params.num_beams = 16;
  request.params.eos_token_id = {{9, 2, 9, 5}};
  EXPECT_OK(ValidateRequest(model, &request));
  request.params.num_beams = 17;
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "num_beams must be at most 16 (what a step has room "
                       "for), got 17"));
  request.params.num_beams = 2;
  request.params.eos_token_id = {{9, 2, 5, 7}};
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "eos_token_id must have at most 3 ids (what a step has "
                       "room for), got 4"));
}

TEST(RequestJsonTest, MalformedRequestsAreNamed) {
  const std::vector<MalformedRequest> all = MalformedRequests();
  EXPECT_GE(all.size(), 60u);
  for (const MalformedRequest& bad : all) {
    EXPECT_THAT(Check(bad.line),
                StatusIs(absl::StatusCode::kInvalidArgument, bad.message))
        << bad.line;
  }
}

TEST(RequestJsonTest, ABadLineKeepsItsId) {
  const RequestLine line =
      ParseRequestLine(R"({"id": 7, "prompt": "a", "x": 1})");
  EXPECT_FALSE(line.body.ok());
  EXPECT_EQ(line.id, json::value(7));
  EXPECT_EQ(WriteErrorLine(line.id, line.body.status()),
            R"({"id": 7, "error": {"code": "INVALID_ARGUMENT", )"
            R"("message": "unknown field \"x\""}})");
}

TEST(RequestJsonTest, ResultsAreWrittenAsTheFormatSays) {
  Result result;
  result.hypotheses = {{{7, 2}, -0.25f, -0.5f, FinishReason::kEos},
                       {{7, 8}, -0.75f, -1.5f, FinishReason::kLength}};
  result.usage = {3, 0, 4, 2};
  const std::vector<std::string> texts = {"é", "ab"};
  EXPECT_EQ(WriteResultLine("x", result, texts),
            R"({"id": "x", "hypotheses": [{"tokens": [7, 2], "text": "é", )"
            R"("score": -0.25, "cum_log_prob": -0.5, "finish_reason": "eos"}, )"
            R"({"tokens": [7, 8], "text": "ab", "score": -0.75, )"
            R"("cum_log_prob": -1.5, "finish_reason": "length"}], )"
            R"("usage": {"prompt_tokens": 3, "cached_tokens": 0, )"
            R"("generated_tokens": 4, "steps": 2}})");
  EXPECT_EQ(WriteResultLine(1, result, {}).find("text"), std::string::npos);
}

}  // namespace
}  // namespace espalier
