// The routes of a server, and their access rules.
#include "serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/prometheus_checker.h"
#include "tests/scratch_directory.h"
#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr char kBody[] =
    R"({"prompt": [4, 5, 6], "max_tokens": 3, "num_beams": 2,
        "ignore_eos": true})";

class ServerTest : public ServerFixture {};

TEST_F(ServerTest, EveryRouteAnswers) {
  Start();
  for (const char* const path :
       {"/health", "/ping", "/ready", "/version", "/metrics", "/load",
        "/get_load", "/", "/v1/models", "/v1/models/toy"}) {
    const RawResponse response = Get(path);
    EXPECT_EQ(response.status, 200) << path << response.body;
    EXPECT_THAT(response.body, Not(IsEmpty())) << path;
    EXPECT_THAT(response.Find("x-request-id"), Not(IsEmpty())) << path;
  }
  EXPECT_EQ(Post("/v1/completions", kBody).status, 200);
  EXPECT_EQ(Post("/inference/v1/generate",
                 R"({"token_ids": [4, 5], "sampling_params": {}})")
                .status,
            200);
  EXPECT_EQ(Post("/tokenize", R"({"prompt": "It rains."})").status, 200);
  EXPECT_EQ(Post("/detokenize", R"({"tokens": [70, 71]})").status, 200);
}

// True if other calls of the I/O thread waited for most of this one.
bool HoldsOthers(int port, const std::string& text) {
  std::atomic<bool> is_answered = false;
  absl::Duration whole;
  std::jthread caller([&] {
    const absl::Time begin = absl::Now();
    RawClient client(port);
    client.Send(text);
    EXPECT_EQ(client.Receive().status, 200);
    whole = absl::Now() - begin;
    is_answered = true;
  });
  absl::Duration longest;
  while (!is_answered) {
    const absl::Time begin = absl::Now();
    RawClient client(port);
    client.Send(GetText("/health"));
    EXPECT_EQ(client.Receive().status, 200);
    longest = std::max(longest, absl::Now() - begin);
  }
  caller.join();
  return longest > whole / 2;
}

TEST_F(ServerTest, NobodyWaitsForLongTexts) {
  Start();
  std::string text, ids;
  while (text.size() < 1'000'000) text += "It rains in the city. ";
  while (ids.size() < 2'000'000) ids += ids.empty() ? "400" : ",401,402,403";
  for (const std::string& call :
       {PostText("/tokenize", Concat(R"({"prompt": ")", text, "\"}")),
        PostText("/detokenize", Concat(R"({"tokens": [)", ids, "]}")),
        PostText("/v1/completions",
                 Concat(R"({"truncate_prompt_tokens": 2, "max_tokens": 1,
                        "prompt": ")",
                        text, "\"}"))}) {
    int num_held = 0;  // by other load of the machine, too
    while (num_held < 5 && HoldsOthers(server_->port(), call)) ++num_held;
    EXPECT_LT(num_held, 5) << call.substr(0, 100);
  }
}

TEST_F(ServerTest, WhatIsNotThereIs404AndAnotherMethod405) {
  Start();
  for (const char* const path :
       {"/v1", "/v1/", "/v1/completions/", "/v2/models", "/health/x",
        "/v1/requests//trace", "/v1/requests/a/b/trace", "//health"}) {
    const RawResponse response = Get(path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_THAT(response.body, HasSubstr("\"error\"")) << path;
  }
  const RawResponse get = Get("/v1/completions");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.Find("allow"), "POST");
  const RawResponse post = Post("/health", "{}");
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.Find("allow"), "GET, HEAD");
  EXPECT_EQ(Get("/v1/models/other").status, 404);
  EXPECT_EQ(Get("/v1/requests/x/trace").status, 404);
}

TEST_F(ServerTest, WhatIsNotUtf8MakesNoBadJson) {
  Start();
  for (const char* const path :
       {"/\xff", "/v1/models/\xff", "/v1/models/%ff"}) {
    const RawResponse response = Get(path);
    EXPECT_EQ(response.status, 404);
    EXPECT_TRUE(ParseJson(response.body).ok()) << response.body;
  }
  EXPECT_EQ(Get("/v1/models/t%6Fy").status, 200);
  EXPECT_EQ(Get("/v1/models/t%6").status, 404);
  EXPECT_EQ(Post("/v1/completions", kBody, "Origin: http://\xff\r\n").status,
            403);
}

TEST_F(ServerTest, BodiesAreJsonBySaying) {
  Start();
  const auto with_type = [&](std::string_view type) {
    return Send(Concat("POST /v1/completions HTTP/1.1\r\nHost: a\r\n", type,
                       "Content-Length: ", sizeof(kBody) - 1, "\r\n\r\n",
                       kBody))
        .status;
  };
  EXPECT_EQ(with_type("Content-Type: application/json\r\n"), 200);
  EXPECT_EQ(with_type("Content-Type: Application/JSON; charset=utf-8\r\n"),
            200);
  EXPECT_EQ(with_type("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(with_type("Content-Type: application/jsonp\r\n"), 415);
  EXPECT_EQ(with_type(""), 415);
}

TEST_F(ServerTest, BodiesAreInUtf8AndNotCompressed) {
  Start();
  const auto with = [&](std::string_view headers) {
    return Send(Concat("POST /v1/completions HTTP/1.1\r\nHost: a\r\n", headers,
                       "\r\nContent-Length: ", sizeof(kBody) - 1, "\r\n\r\n",
                       kBody));
  };
  const std::string json = "Content-Type: application/json";
  for (const char* const charset :
       {"utf-8", "UTF-8", "\"utf-8\"", "us-ascii", "ascii",
        "\"utf-8\" ; x=\"a;charset=latin1\"", "utf-8; charset=UTF-8"}) {
    EXPECT_EQ(with(Concat(json, "; a=b; Charset=", charset)).status, 200)
        << charset;
  }
  for (const char* const charset :
       {"latin1", "utf-16", "\"utf-16\"", "\"", "utf-8; charset=latin1"}) {
    const RawResponse response = with(Concat(json, ";charset=", charset));
    EXPECT_EQ(response.status, 415) << charset;
    EXPECT_THAT(response.body, HasSubstr("Content-Type must have the charset "
                                         "utf-8 or none, got "));
  }
  EXPECT_EQ(with(json + "\r\nContent-Encoding: Identity").status, 200);
  for (const std::string coding : {"identity\r\nContent-Encoding: gzip",
                                   "gzip\r\nContent-Encoding: identity"}) {
    EXPECT_EQ(with(Concat(json, "\r\nContent-Encoding: ", coding)).status, 415);
  }
  for (const std::string coding : {"gzip", "identity, br"}) {
    const RawResponse response =
        with(Concat(json, "\r\nContent-Encoding: ", coding));
    EXPECT_EQ(response.status, 415) << coding;
    EXPECT_EQ(response.Find("accept-encoding"), "identity");
    EXPECT_THAT(
        response.body,
        HasSubstr(Concat("Content-Encoding must be identity or left "
                         "out, as bodies are not decompressed, got \\\"",
                         coding)));
  }
}

TEST_F(ServerTest, ARequestIdComesBack) {
  Start();
  EXPECT_EQ(Get("/health", "X-Request-Id: mine-7\r\n").Find("x-request-id"),
            "mine-7");
  const std::string own(Get("/health").Find("x-request-id"));
  EXPECT_EQ(own.size(), 24);
  EXPECT_NE(Get("/health").Find("x-request-id"), own);
  const std::string long_id(129, 'a');
  EXPECT_NE(Get("/health", Concat("X-Request-Id: ", long_id, "\r\n"))
                .Find("x-request-id"),
            long_id);
}

TEST_F(ServerTest, TheIdOfABodyCountsBeforeThatOfTheHeader) {
  Start();
  const RawResponse response =
      Post("/v1/completions",
           R"({"prompt": [4], "max_tokens": 1, "request_id": "of-body"})",
           "X-Request-Id: of-header\r\n");
  EXPECT_EQ(response.Find("x-request-id"), "of-body");
  EXPECT_THAT(response.body, HasSubstr("cmpl-of-body"));
}

TEST_F(ServerTest, BeforeThereIsAModelItLivesAndIsNotReady) {
  Listen();
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/metrics").status, 200);
  EXPECT_EQ(Get("/load").body, R"({"server_load": 0})");
  EXPECT_EQ(Get("/ready").status, 503);
  for (const char* const path : {"/v1/completions", "/tokenize"}) {
    const RawResponse response = Post(path, kBody);
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_THAT(response.body, HasSubstr("being loaded")) << path;
  }
  ASSERT_OK(server_->Serve(MakeGenerator(), "models/toy"));
  EXPECT_EQ(Get("/ready").status, 200);
  EXPECT_EQ(Post("/v1/completions", kBody).status, 200);
}

TEST_F(ServerTest, WithoutTheKeyOnlyHealthAnswers) {
  Start({.api_keys = ApiKeys({"the-secret"})});
  EXPECT_EQ(Get("/health").status, 200);
  for (const char* const path :
       {"/", "/ready", "/metrics", "/load", "/v1/models", "/nothing"}) {
    EXPECT_EQ(Get(path).status, 401) << path;
    EXPECT_EQ(Get(path, "Authorization: Bearer the-secre\r\n").status, 401);
  }
  const RawResponse refused = Post("/v1/completions", kBody);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.Find("www-authenticate"), "Bearer");
  EXPECT_THAT(refused.body, HasSubstr("authentication_error"));
  EXPECT_THAT(Get("/").Find("www-authenticate"), StartsWith("Basic"));
  const std::string header = "Authorization: Bearer the-secret\r\n";
  EXPECT_EQ(Get("/ready", header).status, 200);
  EXPECT_EQ(Post("/v1/completions", kBody, header).status, 200);
}

TEST_F(ServerTest, NoBodyIsWaitedForThatIsNotWanted) {
  Start({.api_keys = ApiKeys({"the-secret"})});
  const auto head = [](std::string_view path, std::string_view headers) {
    return Concat("POST ", path, " HTTP/1.1\r\nHost: a\r\n", headers,
                  "Content-Length: 1000000\r\n\r\n");
  };
  const std::string key = "Authorization: Bearer the-secret\r\n";
  const std::string type = "Content-Type: application/json\r\n";
  EXPECT_EQ(Send(head("/v1/completions", type)).status, 401);
  EXPECT_EQ(Send(head("/v1/completions", key)).status, 415);
  EXPECT_EQ(Send(head("/nothing", key + type)).status, 404);
  EXPECT_EQ(Send(head("/health", key + type)).status, 405);
}

TEST_F(ServerTest, AnAddressForOthersNeedsAKey) {
  for (const char* const host :
       {"0.0.0.0", "::", "192.0.2.1", "0", "192.0.513"}) {
    EXPECT_THAT(Server::Listen({.host = host, .port = 0}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(Concat("host ", host))));
  }
  EXPECT_OK(Server::Listen({.host = "0.0.0.0", .port = 0, .insecure = true}));
  EXPECT_OK(Server::Listen(
      {.host = "0.0.0.0", .port = 0, .api_keys = ApiKeys({"the-secret"})}));
  for (const char* const host : {"127.0.0.1", "127.3.2.1", "127.1", "localhost",
                                 "LOCALHOST", "localhost."}) {
    EXPECT_OK(Server::Listen({.host = host, .port = 0})) << host;
  }
  // A host without an address.
  EXPECT_THAT(Server::Listen({.host = "nosuch.invalid", .port = 0}).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("host \"nosuch.invalid\" has no address")));
}

TEST_F(ServerTest, AnAddressThatIsTakenIsAnError) {
  Listen();
  EXPECT_THAT(Server::Listen({.port = server_->port()}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("in use")));
}

TEST_F(ServerTest, APathThatIsNearlyARouteHasAHint) {
  Start();
  for (const auto& [path, hint] :
       {std::pair{"/v1/completion", "did you mean /v1/completions?"},
        {"/v1/chat/completion", "did you mean /v1/chat/completions?"},
        {"/metric", "did you mean /metrics?"}}) {
    EXPECT_THAT(Post(path, kBody).body, HasSubstr(hint));
  }
  const std::string long_path = "/v1/completions" + std::string(100, 's');
  for (const std::string& path : {std::string("/nowhere/else"), long_path}) {
    EXPECT_THAT(Get(path).body, Not(HasSubstr("did you mean")));
  }
}

TEST_F(ServerTest, PagesOfOthersMayNotCallAServerWithoutAKey) {
  Start();
  const auto status = [&](const std::string& origin) {
    return Post("/v1/completions", kBody, "Origin: " + origin + "\r\n").status;
  };
  EXPECT_EQ(status("http://127.0.0.1:8000"), 200);
  EXPECT_EQ(status("http://localhost:3000"), 200);
  EXPECT_EQ(status("http://[::1]:8000"), 200);
  for (const char* const origin :
       {"http://evil.example", "http://127.0.0.1.evil.example", "null",
        "http://localhost.evil.example:8000", "127.0.0.1", "file://",
        "http://user@evil.example"}) {
    EXPECT_EQ(status(origin), 403) << origin;
  }
}

TEST_F(ServerTest, WithAKeyPagesOfOthersMay) {
  Start({.api_keys = ApiKeys({"the-secret"})});
  EXPECT_EQ(Post("/v1/completions", kBody,
                 "Origin: http://app.example\r\n"
                 "Authorization: Bearer the-secret\r\n")
                .status,
            200);
}

TEST_F(ServerTest, RequestsOfDifferentKeysShareNoPages) {
  Start({.api_keys = ApiKeys({"first-key", "second-key"})});
  std::string ids;
  for (int i = 0; i < 40; ++i) ids += Concat(i == 0 ? "" : ", ", 3 + i);
  const std::string body =
      Concat(R"({"max_tokens": 1, "prompt": [)", ids, "]}");
  const auto cached = [&](const std::string& key) {
    const RawResponse response =
        Post("/v1/completions", body, "Authorization: Bearer " + key + "\r\n");
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body)
        ->at("usage")
        .at("prompt_tokens_details")
        .at("cached_tokens")
        .as_int64();
  };
  EXPECT_EQ(cached("first-key"), 0);
  EXPECT_EQ(cached("second-key"), 0);
  EXPECT_GT(cached("first-key"), 30);
}

TEST_F(ServerTest, NoKeyReadsTheTracesOfAnother) {
  const auto traces = std::make_shared<RequestTraces>(TraceLimits{8});
  ServerOptions options;
  options.api_keys = ApiKeys({"first-key", "second-key"});
  options.traces = traces;
  Start(options, {.num_threads = 1, .trace = traces});
  const auto header = [](const char* key) {
    return Concat("Authorization: Bearer ", key, "\r\nX-Request-Id: a\r\n");
  };
  EXPECT_EQ(Post("/v1/completions", kBody, header("first-key")).status, 200);
  const std::string path = "/v1/requests/cmpl-a/trace";
  EXPECT_EQ(Get(path, header("second-key")).status, 404);
  EXPECT_EQ(
      Get("/v1/requests/key%200%20cmpl-a/trace", header("second-key")).status,
      404);
  // The traces show the id of the answer, without the key.
  for (const char* const format : {"?format=jsonl", "?format=html"}) {
    const RawResponse trace = Get(path + format, header("first-key"));
    EXPECT_EQ(trace.status, 200);
    EXPECT_THAT(trace.body, HasSubstr("cmpl-a"));
    EXPECT_THAT(trace.body, Not(HasSubstr("key 0")));
  }
  EXPECT_THAT(Get("/v1/requests/cmpl-b/trace", header("first-key")).body,
              HasSubstr("no trace of request \\\"cmpl-b\\\""));
}

TEST_F(ServerTest, AModelIsServedOnceAndNotAfterStop) {
  Start();
  EXPECT_THAT(server_->Serve(MakeGenerator(), "models/other"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("has a model: toy")));
  EXPECT_EQ(Post("/v1/completions", kBody).status, 200);
  Listen();
  server_->Stop();
  EXPECT_THAT(
      server_->Serve(MakeGenerator(), "models/toy"),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("stopped")));
}

TEST_F(ServerTest, SeveralThreadsMayStopIt) {
  Start();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      if (i % 2 == 0) {
        server_->Drain(absl::Seconds(1));
      } else {
        server_->Stop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ServerTest, ATenantOrASaltOfAnotherKeyIsNone) {
  Start({.api_keys = ApiKeys({"first-key"})});
  const std::string header = "Authorization: Bearer first-key\r\n";
  for (const char* const field : {"tenant", "cache_salt"}) {
    const auto with = [&](size_t size) {
      return Post("/v1/completions",
                  Concat(R"({"prompt": [4], "max_tokens": 1, ")", field,
                         "\": \"", std::string(size, 'a'), "\"}"),
                  header);
    };
    EXPECT_EQ(with(250).status, 200) << with(250).body;
    EXPECT_EQ(with(251).status, 400);
    EXPECT_THAT(with(251).body,
                HasSubstr(Concat(field, " must have at most 250 bytes")));
  }
}

TEST_F(ServerTest, LimitsOfConnectionsNameTheirOptions) {
  const testing::ScratchDirectory folder;
  ServerOptions options;
  options.jobs.folder = folder.path();
  options.http.max_header_bytes = 300;
  options.http.max_headers = 4;
  options.http.max_body_bytes = 200;
  options.http.header_timeout = absl::Milliseconds(60);
  options.http.body_timeout = absl::Milliseconds(60);
  options.jobs.files.max_file_bytes = 1;
  options.speech.max_audio_bytes = 1;
  Start(std::move(options));
  const std::string length = "Content-Length: 200000\r\n";
  const std::string late_body = PostText("/tokenize", "{}");
  const std::pair<std::string, std::string> cases[] = {
      {GetText("/", Concat("X: ", std::string(300, 'a'), "\r\n")),
       "(--max-header-bytes)"},
      {GetText("/", "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n"), "(--max-headers)"},
      {PostText("/tokenize", std::string(201, ' ')), "(--max-body-bytes)"},
      {Concat("POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\n", length, "\r\n"),
       "(--max-file-mib)"},
      {Concat("POST /v1/audio/transcriptions HTTP/1.1\r\nHost: 127.0.0.1\r\n",
              length, "\r\n"),
       "(--max-audio-mib)"},
      {"GET / HT", "(--header-timeout)"},
      {late_body.substr(0, late_body.size() - 1), "(--body-timeout)"}};
  for (const auto& [text, name] : cases) {
    EXPECT_THAT(Send(text).body, HasSubstr(name)) << text;
  }
  ServerOptions narrow;
  narrow.http.max_connections = 1;
  Listen(std::move(narrow));
  RawClient first = Connect();
  first.Send(GetText("/health"));
  EXPECT_EQ(first.Receive().status, 200);
  EXPECT_THAT(Send(GetText("/health")).body, HasSubstr("(--max-connections)"));
}

// A body of any kind and length gets the same answer.
TEST_F(ServerTest, WithoutFilesNoneOfTheirRoutesIsThere) {
  Start();
  for (const std::string_view path : {"/v1/files", "/v1/batches"}) {
    const RawResponse response = Post(path, "{}");
    EXPECT_EQ(response.status, 404) << response.body;
    EXPECT_THAT(response.body, HasSubstr("--files DIR"));
    EXPECT_EQ(Get(path).status, 404);
  }
  for (const char* const length : {"50000000", "99999999999"}) {
    const RawResponse response =
        Send(Concat("POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                    "Content-Length: ", length, "\r\n\r\n"));
    EXPECT_EQ(response.status, 404) << response.body;
    EXPECT_THAT(response.body, HasSubstr("--files DIR"));
  }
  // Nor does it wait for the body, or ask for it by a status 100.
  for (const char* const headers :
       {"Transfer-Encoding: chunked\r\n",
        "Content-Length: 10\r\nExpect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n"}) {
    const RawResponse response = Send(Concat(
        "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\n", headers, "\r\n"));
    EXPECT_EQ(response.status, 404) << headers;
    EXPECT_THAT(response.body, HasSubstr("--files DIR")) << headers;
  }
}

TEST_F(ServerTest, NamesOfOthersThatLeadHereAreRefused) {
  Start();
  const auto status = [&](std::string_view host, std::string_view path) {
    return Send(Concat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n"))
        .status;
  };
  for (const char* const host :
       {"127.0.0.1", "127.0.0.1:8000", "localhost:1", "[::1]:8000", "replicas",
        "10.1.2.3", "a.localhost", "localhost.:8000"}) {
    EXPECT_EQ(status(host, "/v1/models"), 200) << host;
  }
  for (const char* const host :
       {"evil.example", "evil.example:8000", "127.0.0.1.evil.example",
        "localhost.evil.example"}) {
    EXPECT_EQ(status(host, "/v1/models"), 403) << host;
    EXPECT_EQ(status(host, "/health"), 200) << host;
  }
  Start({.api_keys = ApiKeys({"the-secret"})});
  EXPECT_EQ(status("evil.example", "/v1/models"), 401);
}

TEST_F(ServerTest, WhoHasNoKeyLearnsNothingOfTheLoad) {
  Start({.api_keys = ApiKeys({"the-secret"}), .always_reports_load = true});
  const std::string key = "Authorization: Bearer the-secret\r\n";
  EXPECT_THAT(Get("/health").Find("endpoint-load-metrics"), IsEmpty());
  EXPECT_THAT(Get("/ready").Find("endpoint-load-metrics"), IsEmpty());
  EXPECT_THAT(Get("/ready", key).Find("endpoint-load-metrics"),
              StartsWith("JSON"));
}

TEST_F(ServerTest, MetricsAreWellFormedAndHaveTheServersOwn) {
  Start();
  Post("/v1/completions", kBody);
  Post("/v1/completions", "{");
  ASSERT_OK_AND_ASSIGN(const testing::PrometheusSamples samples,
                       testing::ReadPrometheus(Get("/metrics").body));
  EXPECT_EQ(samples.at("espalier:http_responses_total{code=\"2xx\"}"), 1);
  EXPECT_EQ(samples.at("espalier:http_responses_total{code=\"4xx\"}"), 1);
  EXPECT_EQ(samples.at("vllm:num_requests_running{model_name=\"toy\"}"), 0);
  EXPECT_EQ(samples.at("vllm:request_success_total{model_name=\"toy\","
                       "finished_reason=\"length\"}"),
            1);
}

TEST_F(ServerTest, TheLoadIsReportedWhereItIsWanted) {
  Start();
  EXPECT_THAT(Get("/health").Find("endpoint-load-metrics"), IsEmpty());
  EXPECT_THAT(Get("/health", "endpoint-load-metrics-format: TEXT\r\n")
                  .Find("endpoint-load-metrics"),
              StartsWith("TEXT rps_fractional="));
  EXPECT_THAT(
      Post("/v1/completions", kBody, "endpoint-load-metrics-format: json\r\n")
          .Find("endpoint-load-metrics"),
      StartsWith("JSON {\"rps_fractional\""));
  Start({.always_reports_load = true});
  EXPECT_THAT(Post("/v1/completions", kBody).Find("endpoint-load-metrics"),
              StartsWith("JSON {"));
}

TEST_F(ServerTest, TheLoadIsRowsThatRunOrWait) {
  Start({}, {.num_threads = 1, .max_running = 1});
  model_->Hold(true);
  RawClient wide = Connect();
  wide.Send(PostText("/v1/completions",
                     R"({"prompt": [4], "num_beams": 8, "max_tokens": 2})"));
  RawClient waiting = Connect();
  waiting.Send(PostText("/v1/completions",
                        R"({"prompt": [4], "num_beams": 3, "max_tokens": 2})"));
  EXPECT_TRUE(AwaitMetric("vllm:num_requests_waiting", 1));
  EXPECT_EQ(Get("/get_load").body, R"({"load": 11})");
  EXPECT_EQ(Get("/load").body, R"({"server_load": 11})");
  model_->Hold(false);
  EXPECT_EQ(wide.Receive().status, 200);
  EXPECT_EQ(waiting.Receive().status, 200);
}

TEST_F(ServerTest, DefaultsComeBeforeTheModelsAndAreChecked) {
  Start({.defaults = R"({"max_tokens": 2, "num_beams": 3})"});
  const json::value answer = *ParseJson(
      Post("/v1/completions", R"({"prompt": [4], "ignore_eos": true, "n": 3})")
          .body);
  EXPECT_EQ(answer.at("choices").as_array().size(), 3);
  EXPECT_EQ(answer.at("usage").at("completion_tokens").as_int64(), 6);
  EXPECT_THAT(
      Server::Listen({.port = 0, .defaults = R"({"num_beans": 3})"}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_beans")));
  Listen({.defaults = R"({"stop_token_ids": [123456]})"});
  EXPECT_THAT(server_->Serve(MakeGenerator(), "models/toy"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("stop_token_ids")));
}

TEST_F(ServerTest, AModelIsCalledByUtf8) {
  auto server = Server::Listen({.port = 0, .model_name = "caf\xE9"});
  ASSERT_OK(server);
  EXPECT_THAT(
      (*server)->Serve(MakeGenerator(), "models/toy"),
      StatusIs(absl::StatusCode::kInvalidArgument, "model_name is not UTF-8"));
  server = Server::Listen({.port = 0});
  ASSERT_OK(server);
  EXPECT_THAT((*server)->Serve(MakeGenerator(), "models/caf\xE9/"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the name of the model's directory is not UTF-8: give "
                       "model_name"));
}

}  // namespace
}  // namespace espalier::serve
