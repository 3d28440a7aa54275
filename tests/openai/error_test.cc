// Conversion of errors.
#include "openai/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/field_error.h"
#include "base/status.h"
#include "openai/call.h"
#include "tests/status_matchers.h"

namespace espalier::openai {
namespace {

using ::testing::HasSubstr;

Error Of(absl::StatusCode code, const std::string& message) {
  return ErrorOf(MakeError(code, message));
}

TEST(ErrorTest, StatusesHaveTheirHttpStatus) {
  const auto status = [](absl::StatusCode code) {
    return Of(code, "m").http_status;
  };
  EXPECT_EQ(status(absl::StatusCode::kInvalidArgument), 400);
  EXPECT_EQ(status(absl::StatusCode::kOutOfRange), 400);
  EXPECT_EQ(status(absl::StatusCode::kFailedPrecondition), 400);
  EXPECT_EQ(status(absl::StatusCode::kUnauthenticated), 401);
  EXPECT_EQ(status(absl::StatusCode::kNotFound), 404);
  EXPECT_EQ(status(absl::StatusCode::kDeadlineExceeded), 504);
  EXPECT_EQ(status(absl::StatusCode::kResourceExhausted), 429);
  EXPECT_EQ(status(absl::StatusCode::kUnavailable), 503);
  EXPECT_EQ(status(absl::StatusCode::kCancelled), 503);
  EXPECT_EQ(status(absl::StatusCode::kInternal), 500);
}

TEST(ErrorTest, AModelThatIsNotServedHasItsFieldAndItsCode) {
  const Error error = ErrorOf(ModelNotFound("the model is not served"));
  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error.param, "model");
  EXPECT_EQ(error.code, "model_not_found");
}

TEST(ErrorTest, WhatCanNeverFitIsNoReasonToRetry) {
  const auto exhausted = absl::StatusCode::kResourceExhausted;
  const Error never =
      ErrorOf(MarkPermanent(ResourceExhausted("it needs 9 pages")));
  EXPECT_EQ(never.http_status, 400);
  EXPECT_EQ(never.retry_after_s, 0);
  EXPECT_EQ(never.type, "invalid_request_error");
  const Error full = Of(exhausted, "too many requests are open: 9");
  EXPECT_EQ(full.http_status, 429);
  EXPECT_GT(full.retry_after_s, 0);
  EXPECT_EQ(full.type, "rate_limit_error");
}

TEST(ErrorTest, APassedDeadlineIsFinal) {
  const Error late = Of(absl::StatusCode::kDeadlineExceeded, "deadline_ms, 5");
  EXPECT_EQ(late.type, "timeout_error");
  EXPECT_TRUE(late.is_final);
  EXPECT_EQ(late.retry_after_s, 0);
  EXPECT_FALSE(Of(absl::StatusCode::kUnavailable, "it drains").is_final);
  EXPECT_FALSE(MakeHttpError(408, "too slow").is_final);
}

TEST(ErrorTest, TheFieldThatAMessageBeginsWithIsTheParam) {
  const auto param = [](const auto&... message) {
    return ErrorOf(InvalidField(message...)).param;
  };
  EXPECT_EQ(param("`num_beams` must be at least 1, got 0"), "num_beams");
  EXPECT_EQ(param("`messages`[0].role must be a string"), "messages[0].role");
  EXPECT_EQ(param("`prompt`[2][1] must be a token id"), "prompt[2][1]");
  EXPECT_EQ(param("`sampling_params` must be an object"), "sampling_params");
  EXPECT_EQ(param("not JSON at byte 0: syntax error"), "");
  EXPECT_EQ(param("`decoder_prompt`: it has no text"), "decoder_prompt");
  EXPECT_EQ(param(FieldName{"stream_options.x:y"}, " is not known"),
            "stream_options.x:y");
  EXPECT_EQ(param("`the prompt` is too long"), "");
  EXPECT_EQ(param("`vocabulary` is too large"), "");
  EXPECT_EQ(Of(kInvalid, "num_beams must be at least 1").param, "");
  EXPECT_EQ(Of(absl::StatusCode::kInternal, "n fell over").param, "");
}

TEST(ErrorTest, ParamsAreCalledWhatTheCallCallsThem) {
  ASSERT_OK_AND_ASSIGN(const Call call,
                       ReadCall(Api::kCompletions,
                                R"({"prompt": "a", "max_tokens": 7, "n": 3})"));
  const Error error =
      ErrorOf(InvalidField("`max_new_tokens` must be at most 5, got 7; "
                           "`num_return_sequences` is not max_new_tokens_more"),
              &call);
  EXPECT_EQ(error.message,
            "max_tokens must be at most 5, got 7; n is not "
            "max_new_tokens_more");
  EXPECT_EQ(error.param, "max_tokens");
}

TEST(ErrorTest, WhatAFlagDecidesIsNotCalledByTheFlag) {
  ASSERT_OK_AND_ASSIGN(const Call call,
                       ReadCall(Api::kCompletions,
                                R"({"prompt": "a", "use_beam_search": true,
                                    "n": 3, "temperature": 0.5})"));
  EXPECT_EQ(ErrorOf(InvalidField("`temperature` must be 1 without `do_sample`, "
                                 "got 0.5"),
                    &call)
                .message,
            "temperature must be 1 without do_sample, got 0.5");
}

TEST(ErrorTest, WhatACallGoesOnFromIsCalledByItsField) {
  const auto error = [](Api api, const std::string& body,
                        const auto&... message) {
    const absl::StatusOr<Call> call = ReadCall(api, body);
    EXPECT_OK(call);
    return ErrorOf(InvalidField(message...), &*call);
  };
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "a"}]})";
  const std::string tokens = R"({"token_ids": [1]})";
  const Error long_chat =
      error(Api::kChat, chat, "`prompt` must fit into the model's context of ",
            ContextLimit{9}, " tokens");
  EXPECT_EQ(long_chat.param, "messages");
  EXPECT_EQ(long_chat.message,
            "messages must fit into the model's context of 9 tokens");
  EXPECT_EQ(long_chat.code, "context_length_exceeded");
  const Error no_id = error(Api::kTokens, tokens,
                            "`prompt_tokens`[2] must be a token id in [0, 5)");
  EXPECT_EQ(no_id.param, "token_ids[2]");
  EXPECT_EQ(no_id.code, "");
  const Error no_room =
      error(Api::kTokens, tokens,
            "`the prompt` has 9 tokens, which leaves no room in the model's "
            "context of ",
            ContextLimit{9});
  EXPECT_EQ(no_room.param, "token_ids");
  EXPECT_EQ(no_room.code, "context_length_exceeded");
}

// In two steps or in one.
TEST(ErrorTest, WordsOfACallAreTheSameWhoeverPutsThem) {
  ASSERT_OK_AND_ASSIGN(
      const Call call,
      ReadCall(Api::kChat, R"({"messages": [{"role": "user", "content": "a"}],
                                                "max_tokens": 7})"));
  const std::pair<absl::Status, std::string> cases[] = {
      {InvalidField("`the prompt` has 9 tokens, which leaves no room in the "
                    "model's context of ",
                    ContextLimit{9}),
       "messages"},
      {MarkPermanent(MakeFieldError(
           absl::StatusCode::kResourceExhausted,
           "`the prompt` has 9 tokens, and `max_waiting_tokens` lets at most 5 "
           "wait; raise it, or shorten the prompt")),
       "messages"},
      {InvalidField("`max_new_tokens` must be at most 5, got 7"), "max_tokens"},
      {InvalidField("`stop`[0] must be a string", Got("\"max_new_tokens\"")),
       "stop[0]"}};
  for (const auto& [status, param] : cases) {
    const Error at_once = ErrorOf(status, &call);
    const Error later = ErrorOf(InWordsOf(call, status));
    EXPECT_EQ(WriteError(at_once), WriteError(later));
    EXPECT_EQ(at_once.http_status, 400);
    EXPECT_EQ(at_once.param, param);
  }
  EXPECT_EQ(ErrorOf(InvalidField("`stop` must be x", Got("\"max_new_tokens\"")),
                    &call)
                .message,
            "stop must be x, got \"max_new_tokens\"");
}

TEST(ErrorTest, IsWrittenAsOpenAiDoes) {
  EXPECT_EQ(WriteError(ErrorOf(InvalidField("`n` must be \"1\""))),
            R"({"error": {"message": "n must be \"1\"", )"
            R"("type": "invalid_request_error", "param": "n", "code": null}})");
  EXPECT_EQ(
      WriteError(MakeHttpError(401, "no key")),
      R"({"error": {"message": "no key", "type": "authentication_error", )"
      R"("param": null, "code": "invalid_api_key"}})");
  EXPECT_EQ(ErrorOf(RefuseField("foo", "unknown field \"foo\"")).param, "foo");
}

TEST(ErrorTest, OptionsOfTheEngineAreFlagsOfTheServer) {
  const Call call;
  const Error error =
      ErrorOf(MakeFieldError(absl::StatusCode::kResourceExhausted,
                             "too many requests are open: 3, of which "
                             "`max_waiting`, 2, wait until one of "
                             "`max_running`, 1, ends"),
              &call);
  EXPECT_EQ(error.http_status, 429);
  EXPECT_EQ(error.message,
            "too many requests are open: 3, of which --max-waiting, 2, wait "
            "until one of --max-running, 1, ends");
  EXPECT_EQ(ErrorOf(MakeFieldError(absl::StatusCode::kResourceExhausted,
                                   "lower `num_beams`, or raise ",
                                   OptionName{"kv_cache_bytes"}),
                    &call)
                .message,
            "lower num_beams, or raise --kv-cache-mib");
  EXPECT_EQ(ErrorOf(InvalidField("`num_beams` must be at most 8 (",
                                 OptionName{"max_beams"}, ")"),
                    &call)
                .message,
            "num_beams must be at most 8 (--max-beams)");
}

// max_tokens, unless it is ours that the call has.
TEST(ErrorTest, WhatACallDoesNotGiveHasTheServersName) {
  constexpr char kMessage[] =
      "`length_penalty` must be less over up to 16 tokens (`max_new_tokens`)";
  const auto message = [&](const char* body) {
    const auto call = ReadCall(Api::kCompletions, body);
    EXPECT_OK(call.status());
    return ErrorOf(InvalidField(kMessage), &*call).message;
  };
  EXPECT_THAT(message(R"({"prompt": "a"})"), HasSubstr("(max_tokens)"));
  EXPECT_THAT(message(R"({"prompt": "a", "max_tokens": 3})"),
              HasSubstr("(max_tokens)"));
  EXPECT_THAT(message(R"({"prompt": "a", "max_new_tokens": 3})"),
              HasSubstr("(max_new_tokens)"));
}

}  // namespace
}  // namespace espalier::openai
