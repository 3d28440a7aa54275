#include "http/server.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tests/http/raw_client.h"
#include "tests/http/test_server.h"
#include "tests/status_matchers.h"

namespace espalier::http {

namespace asio = boost::asio;

namespace {

using espalier::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ServerTest, ConnectionAnswersOneRequestAfterTheOther) {
  const auto server = StartServer(Echo);
  RawClient client(server->port());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client.Send(Post(std::string(i, 'b'))));
    const RawResponse response = client.Receive();
    ASSERT_TRUE(response.is_whole);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /p\n" + std::string(i, 'b'));
    EXPECT_EQ(response.Find("Content-Type"), "text/plain");
    EXPECT_EQ(response.Find("Connection"), "");
    EXPECT_EQ(response.Find("Date").size(), 29);
  }
  EXPECT_EQ(server->stats().accepted_connections, 1);
  EXPECT_EQ(server->stats().responses[2], 100);
}

TEST(ServerTest, EventsComeAsChunks) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        std::vector<Header> headers = {{"X-Name", "value"}};
        EXPECT_TRUE(co_await exchange.BeginEvents(headers));
        EXPECT_TRUE(co_await exchange.SendEvents("data: 1\n\n"));
        EXPECT_TRUE(co_await exchange.SendEvents(""));
        EXPECT_TRUE(co_await exchange.SendEvents("data: 2\n\ndata: 3\n\n"));
      });
  RawClient client(server->port());
  for (int i = 0; i < 2; ++i) {
    client.Send(Get());
    const RawResponse response = client.Receive();
    ASSERT_TRUE(response.is_whole);
    EXPECT_EQ(response.Find("Content-Type"), "text/event-stream");
    EXPECT_EQ(response.Find("Cache-Control"), "no-cache");
    EXPECT_EQ(response.Find("X-Accel-Buffering"), "no");
    EXPECT_EQ(response.Find("X-Name"), "value");
    const std::vector<std::string> expected = {"data: 1\n\n",
                                               "data: 2\n\ndata: 3\n\n"};
    EXPECT_EQ(response.chunks, expected);
  }
}

TEST(ServerTest, OldClientsGetEventsUntilTheConnectionEnds) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        co_await exchange.BeginEvents();
        co_await exchange.SendEvents("data: 1\n\n");
      });
  RawClient client(server->port());
  client.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string answer = client.ReceiveAll().value();
  EXPECT_TRUE(answer.ends_with("\r\n\r\ndata: 1\n\n")) << answer;
  EXPECT_EQ(answer.find("chunked"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos) << answer;
}

TEST(ServerTest, OldClientsKeepTheirConnectionIfTheyAsk) {
  const auto server = StartServer(Echo);
  RawClient client(server->port());
  client.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.Receive().Find("Connection"), "keep-alive");
  client.Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.Receive().Find("Connection"), "close");
  EXPECT_TRUE(client.WaitForEnd());
}

TEST(ServerTest, HeadHasTheHeadersOfAnAnswerAndNoBody) {
  const auto server = StartServer(Echo);
  RawClient client(server->port());
  client.Send("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n" + Get());
  const RawResponse response = client.Receive(/*to_head=*/true);
  EXPECT_EQ(response.Find("Content-Length"), "8");
  EXPECT_EQ(client.Receive().body, "GET /\n");
}

TEST(ServerTest, HeadOfAStreamHasNoEvents) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        co_await exchange.BeginEvents();
        EXPECT_TRUE(co_await exchange.SendEvents("data: 1\n\n"));
      });
  RawClient client(server->port());
  client.Send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + Get());
  EXPECT_EQ(client.Receive(/*to_head=*/true).body, "");
  EXPECT_EQ(client.Receive().body, "data: 1\n\n");
}

TEST(ServerTest, WaitingBodyIsAskedForUnlessItIsRefused) {
  const auto server = StartServer(Echo);
  RawClient client(server->port());
  const std::string head =
      "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n";
  client.Send(head + "Content-Length: 2\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 100);
  client.Send("ab");
  EXPECT_EQ(client.Receive().body, "POST /\nab");
  client.Send(head + "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 100);
  client.Send("1\r\na\r\n0\r\n\r\n");
  EXPECT_EQ(client.Receive().body, "POST /\na");
  client.Send(head + "Content-Length: 999999999\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 413);
  EXPECT_TRUE(client.WaitForEnd());
}

TEST(ServerTest, HeadersOfAnAnswerCannotEndIt) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        Response response;
        response.headers = {{"X-Good", "a\tb \xff"},
                            {"X-Split", "a\r\nX-Injected: b"},
                            {"X-Nul", std::string("a\0b", 3)},
                            {"X Space", "a"},
                            {"", "a"},
                            {"X-Colon:", "a"},
                            {"content-length", "1"},
                            {"Transfer-Encoding", "chunked"}};
        response.body = "body";
        co_await exchange.Respond(std::move(response));
      });
  RawClient client(server->port());
  client.Send(Get());
  const RawResponse response = client.Receive();
  EXPECT_EQ(response.body, "body");
  std::set<std::string> names;
  for (const Header& header : response.headers) names.insert(header.name);
  EXPECT_EQ(names, (std::set<std::string>{"Content-Length", "Content-Type",
                                          "Date", "X-Good"}));
  EXPECT_EQ(response.Find("X-Good"), "a\tb \xff");
}

TEST(ServerTest, StatusesWithoutABodyHaveNone) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        Response response;
        response.status = std::atoi(exchange.request().path.c_str() + 1);
        response.content_type = "";
        response.body = "not sent";
        co_await exchange.Respond(std::move(response));
      });
  RawClient client(server->port());
  for (const int status : {204, 304}) {
    client.Send(Get(Concat("/", status)));
    const RawResponse response = client.Receive();
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.headers.size(), 1);  // Date
  }
  client.Send(Get("/200"));
  EXPECT_EQ(client.Receive().body, "not sent");
}

TEST(ServerTest, HandlerThatFailsOrForgetsIsAnsweredFor) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        if (exchange.request().path == "/throw") throw std::runtime_error("x");
        co_return;
      });
  RawClient client(server->port());
  for (const char* path : {"/throw", "/forget", "/throw"}) {
    client.Send(Get(path));
    const RawResponse response = client.Receive();
    EXPECT_EQ(response.status, 500);
    EXPECT_TRUE(response.is_whole);
  }
  EXPECT_EQ(server->stats().responses[5], 3);
}

TEST(ServerTest, StreamOfAHandlerThatFailsIsCutOff) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        co_await exchange.BeginEvents();
        co_await exchange.SendEvents("data: 1\n\n");
        throw std::runtime_error("x");
      });
  RawClient client(server->port());
  client.Send(Get());
  const RawResponse response = client.Receive();
  EXPECT_EQ(response.body, "data: 1\n\n");
  EXPECT_FALSE(response.is_whole);
}

TEST(ServerTest, HandlerMayEndTheConnection) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        Response response;
        response.close = true;
        co_await exchange.Respond(std::move(response));
      });
  RawClient client(server->port());
  client.Send(Get() + Get());
  EXPECT_EQ(TakeResponses(client.ReceiveAll().value()).size(), 1);
}

TEST(ServerTest, RequestIsTakenOutOfItsExchange) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        EXPECT_EQ(exchange.ClientAddress(), "127.0.0.1");
        EXPECT_FALSE(exchange.begun());
        Response response;
        response.body = exchange.TakeRequest().body;
        co_await exchange.Respond(std::move(response));
        EXPECT_TRUE(exchange.begun());
      });
  RawClient client(server->port());
  client.Send(Post("body"));
  EXPECT_EQ(client.Receive().body, "body");
}

TEST(ServerTest, ThreadsShareTheConnections) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  ServerOptions options;
  options.num_threads = 3;
  const auto server = StartServer(
      [&](Exchange& exchange) {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
        return Echo(exchange);
      },
      options);
  std::vector<RawClient> clients;
  for (int i = 0; i < 6; ++i) clients.emplace_back(server->port());
  for (int round = 0; round < 3; ++round) {
    for (RawClient& client : clients) client.Send(Get());
    for (RawClient& client : clients) EXPECT_EQ(client.Receive().status, 200);
  }
  EXPECT_EQ(threads.size(), 3);
  EXPECT_EQ(server->stats().responses[2], 18);
}

TEST(ServerTest, ListensOnEveryAddressOfAName) {
  ServerOptions options;
  options.host = "localhost";
  const auto server = StartServer(Echo, options);
  ASSERT_FALSE(server->addresses().empty());
  for (const std::string& address : server->addresses()) {
    EXPECT_TRUE(address.ends_with(Concat(":", server->port()))) << address;
  }
  RawClient client(server->port());
  client.Send(Get());
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(ServerTest, WhatCannotBeListenedOnIsRefused) {
  const auto server = StartServer(Echo);
  const auto listen = [](const std::function<void(ServerOptions*)>& edit) {
    ServerOptions options;
    edit(&options);
    return Server::Listen(options, Echo).status();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(listen([&](auto* options) { options->port = server->port(); }),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr(Concat("127.0.0.1:", server->port()))));
  EXPECT_THAT(
      listen([](auto* options) { options->host = "none.invalid"; }),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"none.invalid\"")));
  EXPECT_THAT(listen([](auto* options) { options->host = "192.0.2.1"; }),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("192.0.2.1")));
  EXPECT_THAT(listen([](auto* options) {
                options->host = "0.0.0.0";
                options->loopback_only = true;
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has the address 0.0.0.0")));
  EXPECT_THAT(listen([](auto* options) { options->host = ""; }),
              StatusIs(invalid, HasSubstr("host")));
  for (const int port : {-1, 65536}) {
    EXPECT_THAT(listen([&](auto* options) { options->port = port; }),
                StatusIs(invalid, HasSubstr(Concat("got ", port))));
  }
  EXPECT_THAT(listen([](auto* options) { options->num_threads = 0; }),
              StatusIs(invalid, HasSubstr("num_threads")));
  EXPECT_THAT(
      listen([](auto* options) { options->limits.max_connections = 0; }),
      StatusIs(invalid, HasSubstr("max_connections")));
  EXPECT_THAT(listen([](auto* options) {
                options->limits.idle_timeout = absl::ZeroDuration();
              }),
              StatusIs(invalid, HasSubstr("idle_timeout")));
}

}  // namespace

}  // namespace espalier::http
