// Calls that wait until their constraint is compiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;

// More than a second of work.
constexpr int kManyCalls = 30;

class CompilingCallsTest : public ServerFixture {
 protected:
  // A call for a language of its own, which is refused after a part of a second
  // of work.
  std::string SlowCall(std::string_view fields = "",
                       std::string_view headers = "",
                       std::string_view path = "/v1/completions") {
    return PostText(path,
                    Concat(R"({"prompt": [4], "max_tokens": 1, )", fields,
                           R"("regex": "((a|b|cd){1,900}x){1,900}q{)",
                           ++num_calls_, "}\"}"),
                    headers);
  }
  void SendMany(int count, std::string_view headers = "") {
    for (int i = 0; i < count; ++i) {
      clients_.push_back(Connect());
      clients_.back().Send(SlowCall("", headers));
    }
  }
  int NumWaiting() {
    return static_cast<int>(Gauge("constraint_calls_waiting"));
  }
  double Gauge(const std::string& name) {
    const std::string text = Get("/metrics", headers_).body;
    const size_t at = text.find(Concat("\nespalier:", name, " "));
    return at == text.npos ? -1 : std::stod(text.substr(text.find(' ', at)));
  }
  // Waits until so many wait, which takes them a few milliseconds.
  void AwaitWaiting(int count) {
    int num_waiting = 0;
    for (int i = 0; i < 2'000 && num_waiting < count; ++i) {
      absl::SleepFor(absl::Milliseconds(1));
      num_waiting = NumWaiting();
    }
    EXPECT_GE(num_waiting, count);
  }
  RawResponse Complete(std::string_view fields) {
    return Post("/v1/completions",
                Concat(R"({"prompt": [4], "max_tokens": 2, )", fields, "}"));
  }

  std::string headers_;  // for calls of /metrics
  int num_calls_ = 0;
  std::vector<RawClient> clients_;
};

TEST_F(CompilingCallsTest, ACompiledLanguageWaitsForNoOther) {
  Start();
  EXPECT_EQ(Complete(R"("regex": "a|b")").status, 200);
  EXPECT_EQ(Complete(R"("regex": "a(")").status, 400);
  SendMany(kManyCalls);
  AwaitWaiting(kManyCalls / 2);
  EXPECT_EQ(Complete(R"("regex": "a|b")").status, 200);
  EXPECT_EQ(Complete(R"("regex": "a|b", "stream": true)").status, 200);
  EXPECT_EQ(Complete(R"("regex": "a(")").status, 400);
  EXPECT_GE(NumWaiting(), 1);
  for (RawClient& client : clients_) EXPECT_EQ(client.Receive().status, 400);
  EXPECT_EQ(NumWaiting(), 0);
  EXPECT_EQ(Gauge("constraints_compiled_total"), kManyCalls + 2);
  EXPECT_GT(Gauge("constraint_compile_seconds_total"), 0);
  EXPECT_EQ(Gauge("constraint_waits_total"), kManyCalls + 2);
  EXPECT_GT(Gauge("constraint_wait_seconds_total"), 0);
}

TEST_F(CompilingCallsTest, AStreamWaitsForItsLanguage) {
  Start();
  const RawResponse response = Complete(R"("regex": "ab|cd", "stream": true)");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(ReadEvents(response.body).is_done);
  RawClient client = Connect();
  client.Send(SlowCall(R"("stream": true, )"));
  EXPECT_EQ(client.Receive().status, 400);
}

TEST_F(CompilingCallsTest, AKeyLeavesPlacesAndTurnsToOthers) {
  Start({.api_keys = ApiKeys({"first-key", "second-key"})},
        {.num_threads = 1, .max_running = 2, .max_waiting = 16});
  headers_ = "Authorization: Bearer second-key\r\n";
  SendMany(kManyCalls, "Authorization: Bearer first-key\r\n");
  // A lone owner has 16 of 18 places.
  AwaitWaiting(8);
  const RawResponse other =
      Post("/v1/completions",
           R"({"prompt": [4], "max_tokens": 2, "regex": "a|b"})", headers_);
  EXPECT_EQ(other.status, 200) << other.body;
  EXPECT_GE(NumWaiting(), 1);
  int num_refused = 0;
  int num_ended = 0;
  for (RawClient& client : clients_) {
    const RawResponse response = client.Receive();
    num_refused += response.status == 429;
    num_ended += response.status == 400;
    if (response.status == 429) {
      EXPECT_THAT(response.body, HasSubstr("too many requests of this caller"));
    }
  }
  EXPECT_GE(num_refused, 1);
  EXPECT_GE(num_ended, 16);
  EXPECT_EQ(num_refused + num_ended, kManyCalls);
}

TEST_F(CompilingCallsTest, ItsDeadlineRunsWhileACallWaits) {
  Start();
  SendMany(kManyCalls);
  AwaitWaiting(kManyCalls / 2);
  for (const char* const path : {"/v1/completions", "/v1/completions/render"}) {
    const RawResponse late = Send(SlowCall(R"("deadline_ms": 20, )", "", path));
    EXPECT_EQ(late.status, 504);
    EXPECT_THAT(late.body, HasSubstr("deadline_ms, 20, has passed before the "
                                     "first token: the request waited until "
                                     "its constraint was compiled"));
  }
  EXPECT_GE(NumWaiting(), 1);
}

TEST_F(CompilingCallsTest, ACallThatWaitsCanBeAborted) {
  Start();
  SendMany(kManyCalls);
  AwaitWaiting(kManyCalls / 2);
  RawClient client = Connect();
  client.Send(SlowCall(R"("request_id": "mine", )"));
  std::string aborted;
  while (aborted.find('1') == aborted.npos) {
    aborted = Post("/abort_requests", R"({"request_ids": ["mine"]})").body;
  }
  const RawResponse response = client.Receive();
  EXPECT_EQ(response.status, 499);
  EXPECT_THAT(response.body, HasSubstr("the request was aborted"));
  EXPECT_GE(NumWaiting(), 1);
}

TEST_F(CompilingCallsTest, ACallWhoseClientHasGoneIsNotCompiled) {
  Start();
  SendMany(kManyCalls);
  AwaitWaiting(kManyCalls / 2);
  for (RawClient& client : clients_) client.Reset();
  while (NumWaiting() > 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(Complete(R"("regex": "a|b")").status, 200);
  EXPECT_LE(Gauge("constraints_compiled_total"), kManyCalls / 2);
}

TEST_F(CompilingCallsTest, AStopAnswersCallsThatWait) {
  Start();
  SendMany(kManyCalls);
  AwaitWaiting(kManyCalls / 2);
  const absl::Time begin = absl::Now();
  server_->Stop();
  const absl::Duration taken = absl::Now() - begin;
  int num_stopped = 0;
  for (RawClient& client : clients_) {
    const RawResponse response = client.Receive();
    num_stopped += response.status == 503;
  }
  EXPECT_GE(num_stopped, 1);
  EXPECT_LT(taken, absl::Seconds(20));
}

}  // namespace
}  // namespace espalier::serve
