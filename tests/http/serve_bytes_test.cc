#include "http/serve_bytes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "tests/http/raw_client.h"
#include "tests/http/request_texts.h"
#include "tests/http/test_server.h"

namespace espalier::http {

namespace {

std::string Serve(std::string_view bytes, size_t piece = 0,
                  const ServerOptions& options = {}) {
  std::string answer = ServeBytes(bytes, piece, options, Echo);
  // Only a client that announced "Expect: 100-continue" gets this.
  const std::string_view interim = "HTTP/1.1 100 Continue\r\n\r\n";
  for (size_t at = answer.find(interim); at != std::string::npos;
       at = answer.find(interim, at)) {
    answer.erase(at, interim.size());
  }
  for (size_t at = answer.find("Date: "); at != std::string::npos;
       at = answer.find("Date: ", at + 1)) {
    answer.replace(at + 6, 29, 29, '-');  // it may change between two answers
  }
  return answer;
}

TEST(ServeBytesTest, PipelinedRequestsAreAnsweredInOrder) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) {
    bytes += i % 3 == 0 ? Get(Concat("/", i)) : Post(Concat(i));
  }
  const std::string whole = Serve(bytes);
  const auto responses = TakeResponses(whole);
  ASSERT_EQ(responses.size(), 1000);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(responses[i].body,
              i % 3 == 0 ? Concat("GET /", i, "\n") : Concat("POST /p\n", i));
  }
  for (const size_t piece : {7, 100, 70000}) {
    EXPECT_EQ(Serve(bytes, piece), whole) << piece;
  }
}

TEST(ServeBytesTest, RefusalIsOneAnswerThatEndsTheConnection) {
  for (const RequestText& text : RequestTexts()) {
    // Bytes after a refused request are never parsed as a request.
    const std::string bytes = Get("/before") + text.bytes + Get("/after");
    for (const size_t piece : {0, 1, 9}) {
      const auto responses = TakeResponses(Serve(bytes, piece));
      const bool is_good = text.status == 0;
      const bool ends = text.bytes.find("HTTP/1.0") != std::string::npos;
      ASSERT_EQ(responses.size(), is_good && !ends ? 3 : 2) << text.bytes;
      EXPECT_EQ(responses[0].body, "GET /before\n");
      EXPECT_EQ(responses[1].status, is_good ? 200 : text.status);
      if (is_good) continue;
      EXPECT_EQ(responses[1].Find("Connection"), "close");
      EXPECT_TRUE(responses[1].body.starts_with("{\"error\": \""));
    }
  }
}

TEST(ServeBytesTest, NothingIsAnsweredToAPartOfARequest) {
  const std::string whole = Post("body");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(Serve(whole.substr(0, size)), "") << size;
  }
}

TEST(ServeBytesTest, UserSaysHowErrorsLook) {
  ServerOptions options;
  options.error_response = [](int status, std::string_view message) {
    Response response;
    response.status = status;
    response.body = Concat("<", message, ">");
    return response;
  };
  const auto responses =
      TakeResponses(Serve("GET / HTTP/1.1\r\n\r\n", 0, options));
  ASSERT_EQ(responses.size(), 1);
  EXPECT_EQ(responses[0].body, "<there is no Host header>");
}

TEST(ServeBytesTest, AnswersLargerThanAnyBufferArriveWhole) {
  const std::string body(8 << 20, 'b');
  const auto responses = TakeResponses(Serve(Post(body) + Post(body)));
  ASSERT_EQ(responses.size(), 2);
  EXPECT_TRUE(responses[1].is_whole);
  EXPECT_TRUE(responses[1].body == "POST /p\n" + body);
}

RC_GTEST_PROP(ServeBytesProperty, WhateverIsSentTheAnswersAreHttp, ()) {
  const auto& texts = RequestTexts();
  std::string bytes;
  const int num_texts = *rc::gen::inRange(1, 4);
  for (int i = 0; i < num_texts; ++i) {
    bytes += texts[*rc::gen::inRange<size_t>(0, texts.size())].bytes;
  }
  const int num_edits = *rc::gen::inRange(0, 4);
  for (int i = 0; i < num_edits; ++i) {
    bytes[*rc::gen::inRange<size_t>(0, bytes.size())] =
        *rc::gen::arbitrary<char>();
  }
  const std::string whole = Serve(bytes);
  RC_ASSERT(TakeResponses(whole).size() <= bytes.size());
  const size_t piece = *rc::gen::inRange<size_t>(1, bytes.size() + 1);
  RC_ASSERT(Serve(bytes, piece) == whole);
}

}  // namespace

}  // namespace espalier::http
