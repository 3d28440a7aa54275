#include "serve/trace_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/trace/fake_trace.h"

namespace espalier::serve {
namespace {

using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::MakeUpTrace;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TraceLines;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class TraceAnswerTest : public ::testing::Test {
 protected:
  TraceAnswerTest() {
    for (const TraceEvent& event : events_) traces_.On(event);
  }

  const std::vector<TraceEvent> events_ = MakeUpTrace({.request = 7});
  RequestTraces traces_{{.max_requests = 1}};
};

TEST_F(TraceAnswerTest, LinesAreThoseOfATraceFile) {
  const auto answer = AnswerTrace(traces_, {"7", "7"}, /*tokenizer=*/nullptr);
  ASSERT_OK(answer);
  EXPECT_EQ(answer->content_type, "application/jsonl");
  EXPECT_EQ(answer->body, TraceLines(events_));
}

TEST_F(TraceAnswerTest, ATokenizerAddsTexts) {
  RequestTraces traces({.max_requests = 1});
  const auto tokens = EnFrTokenizer().Encode("How old are you?");
  ASSERT_OK(tokens);
  traces.On(TraceRequest{.request = RequestId{1}, .prompt_tokens = *tokens});
  traces.On(TraceCandidate{.request = RequestId{1},
                           .token = tokens->front(),
                           .why = "among the beams"});
  traces.On(TraceEnd{.request = RequestId{1}});
  const auto answer = AnswerTrace(traces, {"1", "1"}, &EnFrTokenizer());
  ASSERT_OK(answer);
  EXPECT_THAT(answer->body, HasSubstr("\"prompt\": \"How old are you?\""));
  EXPECT_THAT(answer->body, HasSubstr("How\", \"log_prob\""));
}

TEST_F(TraceAnswerTest, APageMayRunItsOwnScriptAlone) {
  const auto answer =
      AnswerTrace(traces_, {"7", "7", TraceFormat::kPage}, &EnFrTokenizer());
  ASSERT_OK(answer);
  EXPECT_EQ(answer->content_type, "text/html; charset=utf-8");
  EXPECT_THAT(answer->body, StartsWith("<!doctype html>"));
  EXPECT_THAT(answer->content_security_policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(answer->content_security_policy,
              Not(HasSubstr("allow-same-origin")));
}

TEST_F(TraceAnswerTest, AnUnknownRequestIsNamed) {
  for (const TraceFormat format : {TraceFormat::kLines, TraceFormat::kPage}) {
    EXPECT_THAT(
        AnswerTrace(traces_, {"8", "8", format}, nullptr).status(),
        StatusIs(absl::StatusCode::kNotFound, HasSubstr("request \"8\"")));
  }
}

TEST(ChooseTraceFormatTest, TheQueryCountsBeforeTheHeader) {
  const auto choose = [](std::string_view query, std::string_view accept) {
    const auto format = ChooseTraceFormat(query, accept);
    EXPECT_OK(format);
    return format.value_or(TraceFormat::kLines);
  };
  EXPECT_EQ(choose("", ""), TraceFormat::kLines);
  EXPECT_EQ(choose("", "*/*"), TraceFormat::kLines);
  EXPECT_EQ(choose("", "application/json"), TraceFormat::kLines);
  EXPECT_EQ(choose("", "text/html,*/*"), TraceFormat::kPage);
  EXPECT_EQ(choose("", "text/html, application/json"), TraceFormat::kLines);
  EXPECT_EQ(choose("format=html", "application/json"), TraceFormat::kPage);
  EXPECT_EQ(choose("a=b&format=jsonl&c", "text/html"), TraceFormat::kLines);
  EXPECT_EQ(choose("&&xformat=html", ""), TraceFormat::kLines);
}

TEST(ChooseTraceFormatTest, AnUnknownFormatIsNamed) {
  for (const std::string_view query :
       {"format=", "format=pdf", "format=\xff"}) {
    EXPECT_THAT(ChooseTraceFormat(query, "").status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("format must be jsonl or html, got ")));
  }
}

}  // namespace
}  // namespace espalier::serve
