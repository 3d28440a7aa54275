// Malicious clients: whatever they send, none of their resources stay held,
// they cannot forge a response, and other clients are served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kGood[] = R"({"prompt": [4, 5], "max_tokens": 2})";

std::string Times(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Bytes of the heap in use; 0 where a sanitizer has another.
size_t BytesInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

class HostileTest : public ServerFixture {
 protected:
  // Returns the value of `name`, with its labels, in /metrics; -1 if it is
  // missing.
  static double Sample(const std::string& metrics, const std::string& name) {
    const size_t at = metrics.find("\n" + name + " ");
    if (at == metrics.npos) return -1;
    return std::stod(metrics.substr(at + name.size() + 2));
  }

  // Waits until only this call is open.
  void ExpectNothingHeld() {
    std::string metrics;
    for (int i = 0; i < 2'000; ++i) {
      metrics = Get("/metrics").body;
      if (Sample(metrics, "espalier:http_connections") == 1 &&
          Sample(metrics, "espalier:http_exchanges_running") == 1 &&
          Sample(metrics, "vllm:num_requests_running{model_name=\"toy\"}") ==
              0 &&
          Sample(metrics, "vllm:num_requests_waiting{model_name=\"toy\"}") ==
              0 &&
          Sample(metrics,
                 "espalier:pages{model_name=\"toy\",state=\"held\"}") == 0) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << metrics;
  }

  void ExpectServes() {
    const RawResponse response = Post("/v1/completions", kGood);
    EXPECT_EQ(response.status, 200) << response.body;
  }

  // Drops the connection after `sent` bytes of the request and `received` of
  // its response.
  void Drop(const std::string& text, size_t sent, size_t received,
            bool by_reset) {
    RawClient client = Connect();
    client.Send(text.substr(0, sent));
    if (received > 0) client.ReceiveBytes(received);
    if (by_reset) client.Reset();
  }
};

TEST_F(HostileTest, ClientsThatDropAtAnyByteLeaveNothingHeld) {
  Start();
  for (const char* const fields :
       {R"("n": 2)", R"("num_beams": 3, "stream_beams": true, "stream": true)",
        R"("n": 2, "stream": true)"}) {
    const std::string text =
        PostText("/v1/completions",
                 Concat(R"({"prompt": [4, 5, 6], "max_tokens": 20, )",
                        R"("ignore_eos": true, )", fields, "}"),
                 "Connection: close\r\n");
    for (size_t size = 0; size < text.size(); size += 3) {
      Drop(text, size, 0, size % 2 == 0);
    }
    for (size_t size = 0; size < 1'500; size += 50) {
      Drop(text, text.size(), size, size % 100 == 0);
    }
  }
  ExpectNothingHeld();
  ExpectServes();
}

TEST_F(HostileTest, ClientsThatDropWhileAStepIsHeldLeaveNothingHeld) {
  Start();
  model_->Hold(true);
  std::vector<RawClient> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(Connect());
    clients.back().Send(PostText(
        "/v1/completions",
        Concat(R"({"prompt": [[4, 5, 6], [7, 8]], "max_tokens": 20, "n": 2, )",
               R"("stream": )", i % 2 == 0 ? "true" : "false", "}")));
  }
  model_->AwaitStep();
  for (RawClient& client : clients) client.Reset();
  clients.clear();
  ExpectNothingHeld();
  model_->Hold(false);
  ExpectServes();
}

TEST_F(HostileTest, AReaderThatTakesNothingHoldsNoRequest) {
  ServerOptions options;
  options.http.max_unsent_bytes = 4'096;
  Start(options);
  RawClient client(server_->port(), /*receive_buffer=*/4'096);
  client.Send(PostText(
      "/v1/completions",
      R"({"prompt": [4, 5, 6], "max_tokens": 60, "n": 4, "stream": true,
          "return_token_ids": true, "ignore_eos": true})",
      "Connection: close\r\n"));
  // It has begun and ends, read or not; then the pages are free again.
  EXPECT_THAT(client.ReceiveBytes(15), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_TRUE(AwaitMetric("vllm:num_requests_running", 0));
  EXPECT_TRUE(AwaitMetric("vllm:kv_cache_usage_perc", 0));
  const std::string rest = client.ReceiveBytes(size_t{1} << 30);
  EXPECT_THAT(rest, HasSubstr("data: [DONE]"));
  client.Close();
  ExpectNothingHeld();
}

// Their streams have no end that a test could wait for.
TEST_F(HostileTest, UnreadStreamsGiveTheirPlacesToThoseThatWait) {
  ServerOptions options;
  options.http.max_unsent_bytes = 4'096;
  options.http.crowded_write_timeout = absl::Milliseconds(100);
  Listen(std::move(options));
  testing::ToyModelOptions model = TextModelWithPages();
  model.max_context = 1 << 20;
  model.page_size = 64;
  model.num_pages = 2 * (model.max_context / model.page_size) + 100;
  model.num_tokens_read = 4;
  ASSERT_OK(server_->Serve(
      MakeGenerator({.num_threads = 1, .max_running = 2}, model), "toy"));
  std::vector<RawClient> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(server_->port(), /*receive_buffer=*/4'096);
    clients.back().Send(PostText("/v1/completions",
                                 R"({"prompt": [4, 5, 6], "max_tokens": 1000000,
                     "stream": true, "ignore_eos": true})"));
    EXPECT_THAT(clients.back().ReceiveBytes(15), StartsWith("HTTP/1.1 200 OK"));
  }
  // As long as no request waits, they have their time.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_EQ(Sample(Get("/metrics").body, "espalier:http_slow_readers_total"),
            0);
  EXPECT_TRUE(AwaitMetric("vllm:num_requests_running", 2));
  ExpectServes();
  EXPECT_GE(Sample(Get("/metrics").body, "espalier:http_slow_readers_total"),
            1);
  clients.clear();
  ExpectNothingHeld();
}

// A call of many prompts and long lists: each list is one for all of them, so
// that little is held while they wait.
TEST_F(HostileTest, ListsOfACallAreHeldOnceWhateverItsPrompts) {
  Start({}, {.num_threads = 1, .max_running = 1});
  model_->Hold(true);
  std::string words = "[4000, 5000]";
  for (int i = 0; i < 20'000; ++i) {
    words += Concat(",[", 10 + i % 3'000, ",", 10 + i % 997, "]");
  }
  const size_t before = BytesInUse();
  RawClient client = Connect();
  client.Send(
      PostText("/v1/completions",
               Concat(R"({"max_tokens": 1, "bad_words_ids": [)", words,
                      R"(], "prompt": [)", Times("[4],", 255), "[5]]}")));
  model_->AwaitStep();
  ASSERT_TRUE(AwaitMetric("vllm:num_requests_waiting", 255));
  // Some 200 bytes an element; of each prompt it was 1 GB.
  EXPECT_LT(BytesInUse(), before + (size_t{64} << 20));
  model_->Hold(false);
  EXPECT_EQ(client.Receive().status, 200);
}

TEST_F(HostileTest, ALongAnswerComesInPieces) {
  Start();
  std::string ids = "4";
  for (int i = 0; i < 40; ++i) ids += Concat(",", 5 + i);
  const std::string fields = R"("max_tokens": 1, "prompt_logprobs": 64)";
  const RawResponse one = Post(
      "/v1/completions", Concat(R"({"prompt": [[4, 5, 6]], )", fields, "}"));
  EXPECT_EQ(one.status, 200) << one.body;
  EXPECT_TRUE(one.chunks.empty()) << "of few log-probabilities its length";
  const RawResponse many =
      Post("/v1/completions",
           Concat(R"({"prompt": [)", Times(Concat("[", ids, "],"), 9), "[", ids,
                  "]], ", fields, "}"));
  EXPECT_EQ(many.status, 200) << many.body;
  ASSERT_GT(many.chunks.size(), 4);
  for (const std::string& chunk : many.chunks) {
    EXPECT_LT(chunk.size(), size_t{256} << 10);
  }
  const json::value answer = ParseJson(many.body).value();
  EXPECT_EQ(answer.at("choices").get_array().size(), 10);
  for (const json::value& choice : answer.at("choices").get_array()) {
    EXPECT_EQ(choice.at("prompt_logprobs").get_array().size(), 41);
  }
  ExpectNothingHeld();
}

TEST_F(HostileTest, WhatAnAnswerAndAllCallsMayHoldIsBounded) {
  ServerOptions options;
  options.requests.max_answer_bytes = 8'000;
  options.max_held_bytes = 400'000;
  Start(options);
  const std::pair<std::string, std::string> calls[] = {
      {R"("prompt": [4, 5, 6, 7], "max_tokens": 1, "prompt_logprobs": 64)", ""},
      {R"("prompt": [[4, 5, 6, 7], [4, 5, 6, 7], [4, 5, 6, 7], [8, 9, 10]],
          "max_tokens": 1, "prompt_logprobs": 64)",
       "prompt_logprobs must make an answer of at most 8000 bytes "
       "(--max-answer-bytes)"},
      {R"("prompt": [4], "max_tokens": 40, "logprobs": 64)", "logprobs must"},
      {R"("prompt": [4], "max_tokens": 40, "n": 100)", "max_tokens must"},
      {R"("prompt": [4], "max_tokens": 40, "num_beams": 30)", ""},
      {R"("prompt": [4], "max_tokens": 40, "num_beams": 30, "n": 30,
          "beam_indices": true)",
       "max_tokens must"}};
  for (const auto& [fields, error] : calls) {
    const RawResponse response =
        Post("/v1/completions", Concat("{", fields, "}"));
    EXPECT_EQ(response.status, error.empty() ? 200 : 400) << response.body;
    EXPECT_THAT(response.body, HasSubstr(error));
  }
  // A long body is counted before it is read.
  const RawResponse response = Post(
      "/v1/completions", Concat(R"({"prompt": [4], "max_tokens": 1, "user": ")",
                                std::string(30'000, 'u'), "\"}"));
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("--max-held-bytes"));
  ExpectServes();
}

// Each of the calls that it renders has the lists of the call.
TEST_F(HostileTest, ARenderedCallComesInPiecesAndIsBounded) {
  const std::string words = Times("[10, 11],", 5'000) + "[12]";
  const std::string body =
      Concat(R"({"max_tokens": 1, "bad_words_ids": [)", words,
             R"(], "prompt": [)", Times("[4],", 99), "[5]]}");
  Start();
  const RawResponse many = Post("/v1/completions/render", body);
  EXPECT_EQ(many.status, 200) << many.body.substr(0, 1'000);
  EXPECT_GT(many.body.size(), 100 * words.size());
  for (const std::string& chunk : many.chunks) {
    EXPECT_LE(chunk.size(), size_t{64} << 10);
  }
  const json::value calls = ParseJson(many.body).value();
  ASSERT_EQ(calls.get_array().size(), 100);
  EXPECT_EQ(calls.at(99).at("token_ids"), json::array{5});
  EXPECT_EQ(calls.at(99).at("sampling_params"),
            calls.at(0).at("sampling_params"));
  ExpectNothingHeld();

  server_.reset();
  ServerOptions options;
  options.requests.max_answer_bytes = 1'000'000;
  Start(options);
  const RawResponse refused = Post("/v1/completions/render", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body,
              HasSubstr("bad_words_ids must make an answer of at most 1000000 "
                        "bytes (--max-answer-bytes), got up to "));
  EXPECT_THAT(refused.body, HasSubstr(R"("param": "bad_words_ids")"));
}

TEST_F(HostileTest, WhatIsTooMuchIsRefusedByItsName) {
  Start();
  const std::string many_prompts = Times("[4],", 256) + "[4]";
  const std::string many_stops = Times("\"s\",", 64) + "\"t\"";
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {R"("prompt": [4], "n": 1025)", "n "},
      {R"("prompt": [4], "n": 1e300)", "n "},
      {R"("prompt": [4], "best_of": 100000)", "best_of "},
      {R"("prompt": [4], "num_beams": 1025)", "num_beams "},
      {R"("prompt": [4], "max_tokens": 99999999999999999999)", "max_tokens "},
      {R"("prompt": [4], "max_tokens": 1000000000)", "max_tokens "},
      {Concat(R"("prompt": [)", many_prompts, "]"), "prompt "},
      {Concat(R"("n": 128, "prompt": [)", Times("[4],", 8), "[4]]"),
       "prompt must make"},
      {Concat(R"("prompt": [4], "stop": [)", many_stops, "]"), "stop "},
      {Concat(R"("prompt": [4], "stop": [")", std::string(5'000, 's'), "\"]"),
       "stop "},
      {Concat(R"("prompt": [)", Times("4,", 1 << 20), "4]"), "prompt "},
      {Concat(R"("prompt": )", Times("[", 1 << 20)), "too deep"},
      {Concat(R"("x": )", Times("{\"x\": ", 1 << 18)), "too deep"},
      {"\"prompt\": \"\xff\xfe\"", "UTF-8"},
      {"\"prompt\": \"\\ud800\"", "not JSON"},
  };
  for (const auto& [fields, says] : bodies) {
    const RawResponse response =
        Post("/v1/completions", Concat("{", fields, "}"));
    EXPECT_EQ(response.status, 400) << fields.substr(0, 80);
    EXPECT_THAT(response.body, HasSubstr(says)) << fields.substr(0, 80);
    EXPECT_LT(response.body.size(), 1'000) << fields.substr(0, 80);
  }
  ExpectNothingHeld();
  ExpectServes();
}

TEST_F(HostileTest, LongTextsToTokenizeAreRefusedBeforeTheyAreTokenized) {
  ServerOptions options;
  options.requests.max_list_elements = 1'000;
  Start(options);
  const auto tokenize = [&](int size) {
    return Post("/tokenize",
                Concat(R"({"prompt": ")", std::string(size, 'a'), "\"}"));
  };
  EXPECT_EQ(tokenize(900).status, 200);
  const RawResponse response = tokenize(1'000);
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("prompt must come in a body of at most "
                                       "1000 bytes (--max-list-elements)"));
}

TEST_F(HostileTest, IdsPutNothingIntoAnswers) {
  Start();
  for (const char* const id :
       {R"(a\r\nX-Injected: 1\r\n\r\n\",\"b\":\"\u0000\n\n)",
        R"(a\n\ndata: {\"fake\": 1}\n\n)", "a b", "\xc3\xa9"}) {
    for (const char* const stream : {"", R"("stream": true, )"}) {
      const RawResponse response = Post(
          "/v1/completions", Concat(R"({"prompt": [4], "max_tokens": 1, )",
                                    stream, R"("request_id": ")", id, "\"}"));
      EXPECT_EQ(response.status, 400) << id;
      EXPECT_EQ(response.Find("x-injected"), "");
      EXPECT_EQ(ParseJson(response.body).value().at("error").at("param"),
                "request_id");
      EXPECT_THAT(response.body, Not(HasSubstr("\n")));
    }
  }
  // In a stream, the id is escaped as JSON.
  const RawResponse stream =
      Post("/v1/completions",
           R"({"prompt": [4], "max_tokens": 1, "stream": true,
          "request_id": "\"},{\"fake\":1"})");
  for (const json::value& event : ReadEvents(stream.body).all) {
    EXPECT_FALSE(event.as_object().contains("fake"));
    EXPECT_EQ(event.at("id"), "cmpl-\"},{\"fake\":1");
  }
  for (const char* const id : {"a\tb", "a b", "\xc3\xa9", ""}) {
    const RawResponse of_id =
        Get("/health", Concat("x-request-id: ", id, "\r\n"));
    EXPECT_EQ(of_id.Find("x-request-id").size(), 24) << id;
  }
  // A carriage return of its own, or one folded, is no header at all.
  EXPECT_EQ(Get("/health", "x-request-id: a\rX-Injected: 1\r\n").status, 400);
  EXPECT_EQ(Get("/health", "x-request-id: a\r\n X-Injected: 1\r\n").status,
            400);
}

TEST_F(HostileTest, NoSpellingOfAPathGetsPastTheKey) {
  ServerOptions options;
  options.api_keys = ApiKeys({"the-secret"});
  Start(options);
  for (const char* const path :
       {"/health/../metrics", "/health/../v1/models", "//metrics", "/metrics/",
        "/%6detrics", "/health%2f..%2fmetrics", "/health%00/metrics",
        "/health;/metrics", "/health?/metrics/../v1/models", "/./metrics",
        "/HEALTH", "/health/", "/metrics?x=/health", "/v1/models/..%2fhealth",
        "/v1/requests/../../health/trace", "\\metrics"}) {
    const RawResponse response = Get(path);
    // The only request that succeeds without a key is that of health.
    const bool is_health = std::string_view(path).starts_with("/health?");
    EXPECT_THAT(response.status, is_health ? AnyOf(200, 401) : AnyOf(400, 401))
        << path;
    EXPECT_THAT(response.body, Not(HasSubstr("model_name"))) << path;
    EXPECT_THAT(response.body, Not(HasSubstr("toy"))) << path;
  }
  // Headers that proxies and browsers give another meaning.
  for (const char* const header :
       {"X-Original-URL: /health\r\n", "X-Forwarded-For: 127.0.0.1\r\n",
        "X-HTTP-Method-Override: GET\r\n", "Authorization: Bearer \r\n",
        "Authorization: Bearer the-secret2\r\n",
        "Authorization: the-secret\r\n",
        "Authorization: Bearer the-secre\r\n"}) {
    EXPECT_EQ(Get("/metrics", header).status, 401) << header;
  }
}

TEST_F(HostileTest, WhatComesWhileTheModelLoadsIsRefusedAtOnce) {
  Listen();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Post("/v1/completions", kGood).status, 503);
    EXPECT_EQ(Post("/v1/completions", Times("[", 1 << 16)).status, 503);
  }
  EXPECT_EQ(server_->Drain(absl::Seconds(1)), 0);
}

TEST_F(HostileTest, WhatComesWhileItDrainsIsRefusedAndHoldsItUpForNoTime) {
  Start();
  std::vector<RawClient> half;
  const std::string text = PostText("/v1/completions", kGood);
  for (int i = 0; i < 20; ++i) {
    half.push_back(Connect());
    half.back().Send(text.substr(0, text.size() - 5));
  }
  EXPECT_TRUE([&] {
    for (int i = 0; i < 2'000; ++i) {
      const std::string metrics = Get("/metrics").body;
      if (Sample(metrics, "espalier:http_connections") == 21) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }());
  const absl::Time begin = absl::Now();
  EXPECT_EQ(server_->Drain(absl::Seconds(20)), 0);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
}

}  // namespace
}  // namespace espalier::serve
