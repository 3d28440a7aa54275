// The end of a server: draining, stopping, being destroyed.
#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "http/server.h"
#include "tests/http/raw_client.h"
#include "tests/http/test_server.h"

namespace espalier::http {

namespace asio = boost::asio;

namespace {

// Until the server has accepted as many connections.
void WaitForAccepted(const Server& server, int count) {
  EXPECT_TRUE(
      Eventually([&] { return server.stats().accepted_connections == count; }));
}

TEST(ServerEndTest, DrainingServerEndsEachConnectionWithItsAnswer) {
  const auto server = StartServer(Echo);
  RawClient kept(server->port());
  kept.Send(Get());
  EXPECT_EQ(kept.Receive().Find("Connection"), "");
  server->Drain();
  RawClient late(server->port());
  for (RawClient* client : {&kept, &late}) {
    client->Send(Get() + Get());
    const auto responses = TakeResponses(client->ReceiveAll().value());
    ASSERT_EQ(responses.size(), 1);
    EXPECT_EQ(responses[0].status, 200);
    EXPECT_EQ(responses[0].Find("Connection"), "close");
  }
}

TEST(ServerEndTest, IdleMeansThatNoExchangeRuns) {
  Waiting waiting;
  const auto server = StartServer(waiting.handler());
  EXPECT_TRUE(server->WaitUntilIdle(absl::ZeroDuration()));
  RawClient client(server->port());
  client.Send(Get());
  ASSERT_TRUE(Eventually([&] { return waiting.num_running() == 1; }));
  server->Drain();
  EXPECT_FALSE(server->WaitUntilIdle(absl::Milliseconds(20)));
  client.Close();
  EXPECT_TRUE(server->WaitUntilIdle(absl::Seconds(10)));
}

TEST(ServerEndTest, StopCancelsHandlersAndClosesConnections) {
  Waiting waiting;
  ServerOptions options;
  options.num_threads = 2;
  const auto server = StartServer(waiting.handler(), options);
  std::vector<RawClient> clients;
  for (int i = 0; i < 10; ++i) {
    clients.emplace_back(server->port());
    if (i % 2 == 0) clients.back().Send(Get());
  }
  WaitForAccepted(*server, 10);
  ASSERT_TRUE(Eventually([&] { return waiting.num_running() == 5; }));
  server->Stop();
  EXPECT_EQ(waiting.num_cancelled(), 5);
  EXPECT_EQ(server->stats().open_connections, 0);
  EXPECT_EQ(server->stats().running_exchanges, 0);
  for (RawClient& client : clients) EXPECT_EQ(client.ReceiveAll(), "");
  server->Stop();  // nothing is left to do
}

TEST(ServerEndTest, StopEndsStreamsThatNeverWait) {
  const auto server = StartServer(EndlessEvents(1));
  RawClient client(server->port());
  client.Send(Get());
  client.ReceiveBytes(100);
  server->Stop();
  EXPECT_EQ(server->stats().open_connections, 0);
}

TEST(ServerEndTest, HandlerThatDoesNotEndIsDestroyed) {
  asio::cancellation_signal none;
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> weak = held;
  auto server = StartServer([held = std::move(held), &none](
                                Exchange& exchange) -> asio::awaitable<void> {
    const auto mine = held;
    asio::steady_timer timer(exchange.executor(), std::chrono::hours(1));
    co_await timer.async_wait(
        asio::bind_cancellation_slot(none.slot(), asio::use_awaitable));
  });
  RawClient client(server->port());
  client.Send(Get());
  ASSERT_TRUE(
      Eventually([&] { return server->stats().running_exchanges == 1; }));
  server.reset();
  EXPECT_TRUE(weak.expired());
}

TEST(ServerEndTest, ServerMayEndAtAnyMoment) {
  for (int i = 0; i < 30; ++i) {
    ServerOptions options;
    options.num_threads = 1 + i % 3;
    auto server = StartServer(i % 2 == 0 ? Echo : EndlessEvents(1000), options);
    std::vector<RawClient> clients;
    for (int c = 0; c < i % 7; ++c) {
      clients.emplace_back(server->port());
      clients.back().Send(Get() + Get("/a") + "POST");
    }
    if (i % 4 == 0) server->Drain();
    server.reset();
    for (RawClient& client : clients) EXPECT_TRUE(client.WaitForEnd());
  }
}

TEST(ServerEndTest, PortIsFreeAfterwards) {
  ServerOptions options;
  for (int i = 0; i < 3; ++i) {
    const auto server = StartServer(Echo, options);
    options.port = server->port();
    RawClient client(server->port());
    client.Send(Get());
    EXPECT_EQ(client.Receive().status, 200);
  }
}

}  // namespace

}  // namespace espalier::http
