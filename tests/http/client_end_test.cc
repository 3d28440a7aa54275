// Clients that go away, at any point, in any way.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "http/server.h"
#include "tests/few_cases.h"
#include "tests/http/raw_client.h"
#include "tests/http/test_server.h"

namespace espalier::http {

namespace asio = boost::asio;

namespace {

// All that was held for clients is free.
bool HoldsNothing(const Server& server) {
  return Eventually([&] {
    const ServerStats stats = server.stats();
    return stats.open_connections == 0 && stats.running_exchanges == 0;
  });
}

TEST(ClientEndTest, HandlerIsCancelledWhenItsClientCloses) {
  Waiting waiting;
  const auto server = StartServer(waiting.handler());
  for (int i = 0; i < 3; ++i) {
    RawClient client(server->port());
    client.Send(Get());
    ASSERT_TRUE(Eventually([&] { return waiting.num_running() == 1; }));
    if (i == 0) client.Close();
    if (i == 1) client.Reset();
    if (i == 2) client.FinishSending();
    EXPECT_TRUE(Eventually([&] { return waiting.num_cancelled() == i + 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return server->stats().clients_gone == 3; }));
  EXPECT_TRUE(HoldsNothing(*server));
}

TEST(ClientEndTest, HandlerIsCancelledEvenIfMoreRequestsWait) {
  Waiting waiting;
  const auto server = StartServer(waiting.handler());
  RawClient client(server->port());
  client.Send(Get() + Get() + Get());
  ASSERT_TRUE(Eventually([&] { return waiting.num_running() == 1; }));
  client.Close();
  EXPECT_TRUE(Eventually([&] { return waiting.num_cancelled() == 1; }));
  EXPECT_TRUE(HoldsNothing(*server));
  EXPECT_EQ(waiting.num_cancelled(), 1);
}

TEST(ClientEndTest, StreamEndsWithItsClient) {
  const auto server = StartServer(EndlessEvents(100));
  for (int i = 0; i < 20; ++i) {
    RawClient client(server->port());
    client.Send(Get());
    client.ReceiveBytes(1000);
    i % 2 == 0 ? client.Close() : client.Reset();
  }
  EXPECT_TRUE(HoldsNothing(*server));
  EXPECT_EQ(server->stats().clients_gone, 20);
}

TEST(ClientEndTest, HandlerThatGoesOnIsToldByWhatItCalls) {
  std::atomic<int> num_refused = 0;
  const auto server =
      StartServer([&](Exchange& exchange) -> asio::awaitable<void> {
        co_await asio::this_coro::throw_if_cancelled(false);
        co_await exchange.BeginEvents();
        while (co_await exchange.SendEvents("data: 1\n\n")) {
        }
        EXPECT_TRUE(exchange.client_gone());
        EXPECT_EQ(exchange.ClientAddress(), "");
        if (!co_await exchange.SendEvents("data: 2\n\n")) ++num_refused;
      });
  RawClient client(server->port());
  client.Send(Get());
  client.ReceiveBytes(1000);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return num_refused == 1; }));
  EXPECT_TRUE(HoldsNothing(*server));
}

TEST(ClientEndTest, ClientThatHasOnlySentAllGetsItsAnswers) {
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        Response response;
        response.body = std::string(3 << 20, 'x');
        co_await exchange.Respond(std::move(response));
      });
  RawClient client(server->port());
  client.Send(Get() + Get());
  client.FinishSending();
  const auto responses = TakeResponses(client.ReceiveAll().value());
  ASSERT_EQ(responses.size(), 2);
  EXPECT_TRUE(responses[1].is_whole);
  EXPECT_TRUE(HoldsNothing(*server));
  EXPECT_EQ(server->stats().clients_gone, 0);
}

TEST(ClientEndTest, ClientsThatDropAtAnyByteLeaveNothing) {
  // Answers at once, after a while, or with events.
  Waiting waiting;
  const auto server =
      StartServer([&](Exchange& exchange) -> asio::awaitable<void> {
        const std::string path = exchange.request().path;
        if (path == "/wait") {
          co_await waiting.handler()(exchange);
        } else if (path == "/events") {
          co_await EndlessEvents(10)(exchange);
        } else {
          co_await Echo(exchange);
        }
      });
  std::mt19937 random(17);
  const std::vector<std::string> texts = {
      Get("/wait"), Get("/events"), Get("/"), Post(std::string(500, 'b')),
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n0\r\n\r\n"};
  const int num_clients = espalier::testing::Cases(2000, 300);
  for (int i = 0; i < num_clients; ++i) {
    RawClient client(server->port());
    std::string bytes = texts[random() % texts.size()];
    if (random() % 2 == 0) bytes.resize(random() % bytes.size());
    client.Send(bytes);
    if (random() % 4 == 0) client.FinishSending();
    random() % 2 == 0 ? client.Close() : client.Reset();
  }
  EXPECT_TRUE(HoldsNothing(*server));
  EXPECT_EQ(waiting.num_running(), 0);
  RawClient client(server->port());
  client.Send(Get());
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(ClientEndTest, CancelledWriteDoesNotDamageTheStream) {
  // A handler of its own accord gives up a write that waits for the reader.
  const auto server =
      StartServer([](Exchange& exchange) -> asio::awaitable<void> {
        co_await exchange.BeginEvents();
        co_await asio::this_coro::throw_if_cancelled(false);
        const std::string event = std::string(8 << 20, 'x');
        asio::cancellation_signal signal;
        asio::steady_timer timer(exchange.executor(),
                                 std::chrono::milliseconds(30));
        timer.async_wait([&](const boost::system::error_code&) {
          signal.emit(asio::cancellation_type::terminal);
        });
        const bool sent = co_await asio::co_spawn(
            exchange.executor(), exchange.SendEvents(event),
            asio::bind_cancellation_slot(signal.slot(), asio::use_awaitable));
        EXPECT_FALSE(sent);
        EXPECT_TRUE(co_await exchange.SendEvents("data: next\n\n"));
      });
  RawClient client(server->port(), /*receive_buffer=*/4096);
  client.Send(Get());
  absl::SleepFor(absl::Milliseconds(60));
  const RawResponse response = client.Receive();
  EXPECT_TRUE(response.is_whole);
  ASSERT_EQ(response.chunks.size(), 2);
  EXPECT_EQ(response.chunks[1], "data: next\n\n");
}

}  // namespace

}  // namespace espalier::http
