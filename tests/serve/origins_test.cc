// Requests of web pages from other origins, without a browser: the server's
// responses. page_server_test.py has a browser.
#include "serve/origins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;

constexpr char kTwoTokens[] = R"({"prompt": [4, 5, 6], "max_tokens": 2})";
constexpr std::string_view kAllow = "access-control-allow-origin";

TEST(AllowedOriginsTest, WhatIsNoOriginIsRefusedByName) {
  for (const char* const text :
       {"https://a.example", "http://localhost:3000", "http://[::1]:80",
        "app://page", "null", "*"}) {
    EXPECT_OK(AllowedOrigins::Make({text}));
  }
  for (const char* const text :
       {"", "a.example", "https://", "://a", "https://a.example/",
        "https://a/b", "https://*.example", "https://a b", "https://a,http://b",
        "https://u@a", "https://a\n"}) {
    EXPECT_THAT(AllowedOrigins::Make({"null", text}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(ShownInQuotes(text))));
  }
  EXPECT_THAT(
      AllowedOrigins::Make({"\xff"}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got \"\\xff\"")));
}

TEST(AllowedOriginsTest, AllowsThoseAlone) {
  const auto some = AllowedOrigins::Make({"https://a.example", "null"}).value();
  for (const char* const origin :
       {"https://a.example", "HTTPS://A.example", "null"}) {
    EXPECT_TRUE(some.Allow(origin)) << origin;
  }
  for (const char* const origin :
       {"", "https://a.example:444", "http://a.example", "https://a.example.b",
        "https://b.a.example", "*"}) {
    EXPECT_FALSE(some.Allow(origin)) << origin;
  }
  const auto all = AllowedOrigins::Make({"*"}).value();
  EXPECT_TRUE(all.Allow("https://b.example"));
  EXPECT_FALSE(all.Allow(""));
  EXPECT_FALSE(AllowedOrigins().Allow("null"));
}

class OriginsTest : public ServerFixture {
 protected:
  static ServerOptions Allowing(std::string origin) {
    ServerOptions options;
    options.allowed_origins = AllowedOrigins::Make({std::move(origin)}).value();
    return options;
  }
  RawResponse Preflight(const std::string& headers) {
    return Send("OPTIONS /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n" +
                headers + "\r\n");
  }
};

TEST_F(OriginsTest, AnAllowedPageReadsAnswersErrorsAndStreams) {
  Start(Allowing("https://a.example"));
  const std::string origin = "Origin: https://a.example\r\n";
  const std::string stream =
      R"({"prompt": [4], "max_tokens": 2, "stream": true})";
  for (const auto& [response, status] :
       {std::pair{Post("/v1/completions", kTwoTokens, origin), 200},
        {Post("/v1/completions", stream, origin), 200},
        {Post("/v1/completions", "{}", origin), 400},
        {Get("/v1/models", origin), 200},
        {Get("/nothing", origin), 404},
        {Post("/health", "", origin), 405}}) {
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.Find(kAllow), "https://a.example") << status;
    EXPECT_EQ(response.Find("vary"), "Origin");
    EXPECT_THAT(std::string(response.Find("access-control-expose-headers")),
                HasSubstr("x-request-id"));
  }
}

TEST_F(OriginsTest, AnotherPageReadsNothing) {
  Start(Allowing("https://a.example"));
  const RawResponse other =
      Post("/v1/completions", kTwoTokens, "Origin: https://b.example\r\n");
  EXPECT_EQ(other.status, 403);
  EXPECT_THAT(other.body, HasSubstr("--allowed-origin"));
  // Requests without an origin, or from one on this machine, need no
  // permission.
  const RawResponse plain = Post("/v1/completions", kTwoTokens);
  const RawResponse own =
      Post("/v1/completions", kTwoTokens, "Origin: http://localhost:3000\r\n");
  for (const RawResponse& response : {plain, own}) {
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.Find("vary"), "Origin");
  }
  for (const RawResponse& response : {other, plain, own}) {
    EXPECT_EQ(response.Find(kAllow), "");
  }
}

TEST_F(OriginsTest, ABrowserMayAskInAdvanceWithoutAKey) {
  ServerOptions options = Allowing("https://a.example");
  options.api_keys = ApiKeys({"the-secret"});
  Start(options);
  const std::string asks =
      "Origin: https://a.example\r\n"
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization,content-type\r\n";
  const RawResponse answer =
      Preflight(asks + "Access-Control-Request-Private-Network: true\r\n");
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.Find(kAllow), "https://a.example");
  EXPECT_THAT(std::string(answer.Find("access-control-allow-methods")),
              HasSubstr("POST"));
  EXPECT_EQ(answer.Find("access-control-allow-headers"),
            "authorization,content-type");
  EXPECT_EQ(answer.Find("access-control-allow-private-network"), "true");
  EXPECT_EQ(Preflight(asks).Find("access-control-allow-private-network"), "");
  // The call itself needs the key; why it is refused the page may read.
  const std::string origin = "Origin: https://a.example\r\n";
  const RawResponse refused = Post("/v1/completions", kTwoTokens, origin);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.Find(kAllow), "https://a.example");
  EXPECT_EQ(Post("/v1/completions", kTwoTokens,
                 origin + "Authorization: Bearer the-secret\r\n")
                .status,
            200);
  // Other preflights are refused like calls without a key.
  for (const std::string& headers :
       {std::string(), origin,
        std::string("Origin: https://b.example\r\n"
                    "Access-Control-Request-Method: POST\r\n")}) {
    EXPECT_EQ(Preflight(headers).status, 401);
  }
}

TEST_F(OriginsTest, WithoutTheOptionThereAreNoSuchHeaders) {
  Start();
  EXPECT_EQ(Preflight("Origin: http://localhost:3000\r\n"
                      "Access-Control-Request-Method: POST\r\n")
                .status,
            405);
  const RawResponse answer =
      Post("/v1/completions", kTwoTokens, "Origin: http://localhost:3000\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Find(kAllow), "");
  EXPECT_EQ(answer.Find("vary"), "");
}

}  // namespace
}  // namespace espalier::serve
