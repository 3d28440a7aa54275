// Limits of a server as its clients meet them: time, connections, files.
#include "http/limits.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/http/raw_client.h"
#include "tests/http/test_server.h"

namespace espalier::http {

namespace {

constexpr absl::Duration kShort = absl::Milliseconds(60);

ServerOptions WithLimits(const std::function<void(Limits*)>& edit) {
  ServerOptions options;
  edit(&options.limits);
  return options;
}

TEST(LimitsTest, SlowHeadersTimeOut) {
  const auto server = StartServer(Echo, WithLimits([](Limits* limits) {
                                    limits->header_timeout = kShort;
                                  }));
  RawClient client(server->port());
  client.Send(Get());
  EXPECT_EQ(client.Receive().status, 200);
  client.Send("GET / HT");
  const RawResponse response = client.Receive();
  EXPECT_EQ(response.status, 408);
  EXPECT_EQ(response.Find("Connection"), "close");
  EXPECT_TRUE(client.WaitForEnd());
  EXPECT_EQ(server->stats().timeouts, 1);
}

TEST(LimitsTest, HeadersThatDripTimeOutAsWell) {
  const auto server = StartServer(Echo, WithLimits([](Limits* limits) {
                                    limits->header_timeout = kShort;
                                  }));
  RawClient client(server->port());
  // The kind of attack called Slowloris.
  client.Send("GET / HTTP/1.1\r\nHost: h\r\n");
  EXPECT_TRUE(Eventually([&] {
    client.Send("X-Next: a\r\n");
    absl::SleepFor(absl::Milliseconds(5));
    return server->stats().timeouts == 1;
  }));
}

TEST(LimitsTest, SlowBodiesTimeOut) {
  const auto server = StartServer(
      Echo, WithLimits([](Limits* limits) { limits->body_timeout = kShort; }));
  for (const char* length :
       {"Content-Length: 5", "Transfer-Encoding: chunked"}) {
    RawClient client(server->port());
    client.Send(std::string("POST / HTTP/1.1\r\nHost: h\r\n") + length +
                "\r\n\r\n1");
    EXPECT_EQ(client.Receive().status, 408);
    EXPECT_TRUE(client.WaitForEnd());
  }
}

TEST(LimitsTest, BodiesThatComeAtTheRateHaveTheirTime) {
  const auto server = StartServer(Echo, WithLimits([](Limits* limits) {
                                    limits->body_timeout = kShort;
                                    limits->min_body_rate = 1;
                                  }));
  RawClient client(server->port());
  client.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\n");
  for (int i = 0; i < 20; ++i) {
    client.Send("x");
    absl::SleepFor(kShort / 6);  // three times the time-out in all
  }
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(LimitsTest, IdleConnectionsAreClosedSilently) {
  const auto server = StartServer(
      Echo, WithLimits([](Limits* limits) { limits->idle_timeout = kShort; }));
  RawClient fresh(server->port());
  EXPECT_EQ(fresh.ReceiveAll(), "");
  RawClient used(server->port());
  used.Send(Get());
  EXPECT_EQ(used.Receive().status, 200);
  used.Send("\r\n");  // no request has begun
  EXPECT_EQ(used.ReceiveAll(), "");
  EXPECT_EQ(server->stats().timeouts, 0);
}

TEST(LimitsTest, HandlersHaveAllTheTimeTheyTake) {
  Waiting waiting;
  const auto server =
      StartServer(waiting.handler(), WithLimits([](Limits* limits) {
                    limits->header_timeout = limits->body_timeout = kShort;
                    limits->idle_timeout = limits->write_timeout = kShort;
                    limits->linger_timeout = kShort;
                  }));
  RawClient client(server->port());
  client.Send(Get());
  ASSERT_TRUE(Eventually([&] { return waiting.num_running() == 1; }));
  absl::SleepFor(5 * kShort);
  EXPECT_EQ(waiting.num_running(), 1);
}

TEST(LimitsTest, ReaderThatTakesNothingIsCutOff) {
  const auto server = StartServer(
      EndlessEvents(10000),
      WithLimits([](Limits* limits) { limits->write_timeout = kShort; }));
  RawClient client(server->port(), /*receive_buffer=*/4096);
  client.Send(Get());
  EXPECT_TRUE(Eventually([&] { return server->stats().clients_gone == 1; }));
  EXPECT_TRUE(
      Eventually([&] { return server->stats().open_connections == 0; }));
}

// A byte at a time, longer than the time-outs of the tests.
void TakeALittle(RawClient* client) {
  const absl::Time end = absl::Now() + 15 * kShort;
  while (absl::Now() < end) {
    EXPECT_FALSE(client->ReceiveBytes(1).empty());
    absl::SleepFor(absl::Milliseconds(5));
  }
}

TEST(LimitsTest, ReaderThatTakesALittleIsKept) {
  // One event takes longer than the time-out.
  const auto server = StartServer(
      EndlessEvents(64 << 20),
      WithLimits([](Limits* limits) { limits->write_timeout = 5 * kShort; }));
  RawClient client(server->port(), /*receive_buffer=*/4096);
  client.Send(Get());
  TakeALittle(&client);
  EXPECT_EQ(server->stats().clients_gone, 0);
}

TEST(LimitsTest, ReaderThatTakesTooLittleIsCutOff) {
  const auto server =
      StartServer(EndlessEvents(64 << 20), WithLimits([](Limits* limits) {
                    limits->write_timeout = 5 * kShort;
                    limits->min_write_rate = 64 << 20;
                  }));
  RawClient client(server->port(), /*receive_buffer=*/4096);
  client.Send(Get());
  EXPECT_TRUE(Eventually([&] {
    client.ReceiveBytes(1);
    return server->stats().clients_gone == 1;
  }));
}

// Its system takes a part, and the server's holds the rest: the handler never
// waits for it.
TEST(LimitsTest, UnreadBytesOfTheSystemCountOnlyWhileOthersWait) {
  std::atomic<bool> others_wait = false;
  std::atomic<bool> holds_place = false;
  ServerOptions options = WithLimits(
      [](Limits* limits) { limits->crowded_write_timeout = kShort; });
  options.others_wait = [&] { return others_wait.load(); };
  std::atomic<int> num_logged = 0;
  options.answer_log = [&](const AnswerRecord& record) {
    if (record.note == "slow" && !record.is_whole) ++num_logged;
  };
  const auto server = StartServer(
      [&](Exchange& exchange) -> boost::asio::awaitable<void> {
        co_await exchange.BeginEvents();
        EXPECT_TRUE(co_await exchange.SendEvents(std::string(64 << 10, 'e')));
        boost::asio::steady_timer timer(exchange.executor());
        while (true) {
          exchange.set_holds_place(holds_place);
          timer.expires_after(std::chrono::milliseconds(1));
          co_await timer.async_wait(boost::asio::use_awaitable);
        }
      },
      options);
  RawClient unread(server->port(), /*receive_buffer=*/4096);
  RawClient read(server->port());
  for (RawClient* client : {&unread, &read}) client->Send(Get());
  EXPECT_GE(read.ReceiveBytes(64 << 10).size(), 64 << 10);
  absl::SleepFor(5 * kShort);
  EXPECT_EQ(server->stats().running_exchanges, 2);
  others_wait = true;
  absl::SleepFor(5 * kShort);
  EXPECT_EQ(server->stats().running_exchanges, 2);
  holds_place = true;
  EXPECT_TRUE(Eventually([&] { return server->stats().slow_readers == 1; }));
  EXPECT_TRUE(unread.WaitForEnd());
  EXPECT_TRUE(Eventually([&] { return num_logged == 1; }));
  absl::SleepFor(5 * kShort);
  EXPECT_EQ(server->stats().running_exchanges, 1);
  EXPECT_EQ(server->stats().slow_readers, 1);
  EXPECT_EQ(num_logged, 1);
}

TEST(LimitsTest, ReaderThatTakesTheRateIsKeptWhileOthersWait) {
  ServerOptions options = WithLimits(
      [](Limits* limits) { limits->crowded_write_timeout = 5 * kShort; });
  options.others_wait = [] { return true; };
  const auto server = StartServer(EndlessEvents(64 << 20), options);
  RawClient client(server->port(), /*receive_buffer=*/4096);
  client.Send(Get());
  TakeALittle(&client);
  EXPECT_EQ(server->stats().clients_gone, 0);
  EXPECT_TRUE(Eventually([&] { return server->stats().slow_readers == 1; }));
}

TEST(LimitsTest, StreamIsNotFarAheadOfItsReader) {
  const auto server = StartServer(
      EndlessEvents(1000),
      WithLimits([](Limits* limits) { limits->max_unsent_bytes = 32 << 10; }));
  RawClient client(server->port(), /*receive_buffer=*/4096);
  client.Send(Get());
  int64_t sent = 0;
  EXPECT_TRUE(Eventually([&] {
    absl::SleepFor(absl::Milliseconds(50));
    const int64_t before = std::exchange(sent, server->stats().bytes_sent);
    return before > 0 && before == sent;
  }));
  EXPECT_LT(sent, 256 << 10);
}

TEST(LimitsTest, ConnectionsBeyondTheLimitAreRefused) {
  const auto server = StartServer(
      Echo, WithLimits([](Limits* limits) { limits->max_connections = 3; }));
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server->port());
    clients.back().Send(Get());
    EXPECT_EQ(clients.back().Receive().status, 200);
  }
  for (int i = 0; i < 10; ++i) {
    RawClient refused(server->port());
    refused.Send(Get());
    EXPECT_EQ(refused.Receive().status, 503);
    EXPECT_TRUE(refused.WaitForEnd());
  }
  EXPECT_EQ(server->stats().refused_connections, 10);
  clients.pop_back();
  EXPECT_TRUE(Eventually([&] {
    RawClient next(server->port());
    next.Send(Get());
    return next.Receive().status == 200;
  }));
}

TEST(LimitsTest, WantOfFilesDelaysConnectionsAndNothingElse) {
  const auto server = StartServer(Echo);
  RawClient known(server->port());
  known.Send(Get());
  EXPECT_EQ(known.Receive().status, 200);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next_fd = dup(known.fd());
  close(next_fd);
  // The client's is the last one.
  const rlimit low = {.rlim_cur = static_cast<rlim_t>(next_fd) + 1,
                      .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  RawClient waiting(server->port());
  waiting.Send(Get());
  known.Send(Get());
  EXPECT_EQ(known.Receive().status, 200);
  absl::SleepFor(absl::Milliseconds(120));
  EXPECT_EQ(server->stats().accepted_connections, 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(waiting.Receive().status, 200);
}

TEST(LimitsTest, BodiesOnTheirWayAreLimitedTogether) {
  // A body counts as its buffer's capacity, which grows in steps.
  const auto server = StartServer(Echo, WithLimits([](Limits* limits) {
                                    limits->max_unread_bytes = 130 << 10;
                                  }));
  const std::string part =
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 65536\r\n\r\nbegin";
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server->port());
    clients.back().Send(part);
    EXPECT_TRUE(Eventually([&] {
      return server->stats().bytes_received == std::ssize(part) * (i + 1);
    }));
  }
  EXPECT_EQ(clients[2].Receive().status, 503);
  // Complete bodies do not count, and a closed connection's body no longer
  // does.
  for (int i = 0; i < 5; ++i) {
    RawClient whole(server->port());
    whole.Send(Post(std::string(500, 'b')));
    EXPECT_EQ(whole.Receive().status, 200);
  }
  clients[0].Close();
  EXPECT_TRUE(
      Eventually([&] { return server->stats().open_connections <= 2; }));
  clients[1].Send(std::string(65531, 'x'));
  EXPECT_EQ(clients[1].Receive().status, 200);
  for (int i = 0; i < 5; ++i) {
    RawClient next(server->port());
    next.Send(part);
    absl::SleepFor(absl::Milliseconds(2));
    next.Send(std::string(65531, 'x'));
    EXPECT_EQ(next.Receive().status, 200);
  }
}

TEST(LimitsTest, BodyIsRefusedByItsHead) {
  ServerOptions options;
  options.head_check = [](const Request& head) -> std::optional<HeadRefusal> {
    if (head.Find("Authorization") == "known") return std::nullopt;
    return HeadRefusal{{.status = 401, .body = "who?"}};
  };
  const auto server = StartServer(Echo, options);
  const auto head = [](std::string_view more) {
    return "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n" +
           std::string(more) + "\r\n";
  };
  for (const char* more : {"", "Expect: 100-continue\r\n"}) {
    RawClient unknown(server->port());
    unknown.Send(head(more));
    EXPECT_EQ(unknown.Receive().status, 401);
    EXPECT_TRUE(unknown.WaitForEnd());
  }
  RawClient asks_for_head(server->port());
  asks_for_head.Send("HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
  const RawResponse refused = asks_for_head.Receive(/*to_head=*/true);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.Find("Content-Length"), "4");
  EXPECT_EQ(asks_for_head.ReceiveAll(), "");
  RawClient known(server->port());
  known.Send(head("Authorization: known\r\nExpect: 100-continue\r\n"));
  EXPECT_EQ(known.Receive().status, 100);
  known.Send("body" + head("") + "body");  // the second one comes whole
  EXPECT_EQ(known.Receive().body, "POST /\nbody");
  EXPECT_EQ(known.Receive().status, 200);
}

TEST(LimitsTest, ClientThatIsRefusedMaySendOnBeforeItReadsWhy) {
  const auto server = StartServer(Echo, WithLimits([](Limits* limits) {
                                    limits->max_body_bytes = 8 << 20;
                                  }));
  const std::string body(24 << 20, 'b');  // more than sockets hold
  for (int i = 0; i < 5; ++i) {
    RawClient client(server->port());
    EXPECT_TRUE(client.Send(Post(body)));
    EXPECT_EQ(client.Receive().status, 413);
    EXPECT_TRUE(client.WaitForEnd());
  }
}

// Whatever it sends for so long.
TEST(LimitsTest, RefusedClientThatSendsMuchOrSlowlyGetsItsAnswer) {
  const auto server = StartServer(Echo, WithLimits([](Limits* limits) {
                                    limits->linger_timeout = 3 * kShort;
                                    limits->max_body_bytes = 1000;
                                  }));
  const std::string body(24 << 20, 'b');  // more than sockets hold
  RawClient fast(server->port());
  EXPECT_TRUE(fast.Send(Post(body)));
  EXPECT_EQ(fast.Receive().status, 413);
  RawClient slow(server->port());
  slow.Send("bad\r\n\r\n");
  const absl::Time end = absl::Now() + 9 * kShort;
  while (absl::Now() < end) {
    EXPECT_TRUE(slow.Send("x"));
    absl::SleepFor(kShort / 6);
  }
  EXPECT_EQ(slow.Receive().status, 400);
  EXPECT_TRUE(slow.WaitForEnd());
}

TEST(LimitsTest, RefusedClientThatSendsOnIsClosed) {
  const auto server = StartServer(Echo, WithLimits([](Limits* limits) {
                                    limits->linger_timeout = kShort;
                                    limits->max_linger = 2 * kShort;
                                    limits->max_body_bytes = 100;
                                  }));
  RawClient silent(server->port());
  silent.Send("bad\r\n\r\n");
  EXPECT_TRUE(
      Eventually([&] { return server->stats().open_connections == 0; }));
  RawClient sending(server->port());
  sending.Send("bad\r\n\r\n");
  EXPECT_TRUE(Eventually([&] { return !sending.Send(std::string(99, 'x')); }));
}

// Sends a byte now and then. False if the connection was closed before the end.
bool DripsUntil(absl::Time end, RawClient* client) {
  while (absl::Now() < end) {
    if (!client->Send("x")) return false;
    absl::SleepFor(kShort / 6);
  }
  return true;
}

TEST(LimitsTest, OnlySomeClientsMayLingerForLong) {
  const auto server = StartServer(Echo, WithLimits([](Limits* limits) {
                                    limits->linger_timeout = 3 * kShort;
                                    limits->max_lingering = 1;
                                  }));
  RawClient first(server->port());
  first.Send("bad\r\n\r\n");
  EXPECT_EQ(first.Receive().status, 400);
  RawClient second(server->port());
  second.Send("bad\r\n\r\n");
  EXPECT_EQ(second.Receive().status, 400);
  EXPECT_TRUE(Eventually([&] {
    EXPECT_TRUE(first.Send("x"));
    absl::SleepFor(kShort / 6);
    return !second.Send("x");
  }));
  EXPECT_TRUE(DripsUntil(absl::Now() + 6 * kShort, &first));
}

// Connections beyond max_connections take no place from those that linger.
TEST(LimitsTest, RefusedConnectionsDoNotCountAsLingering) {
  const auto server = StartServer(Echo, WithLimits([](Limits* limits) {
                                    limits->linger_timeout = 6 * kShort;
                                    limits->max_lingering = 1;
                                    limits->max_connections = 1;
                                  }));
  RawClient client(server->port());
  client.Send(Get());
  EXPECT_EQ(client.Receive().status, 200);
  RawClient refused(server->port());
  EXPECT_EQ(refused.Receive().status, 503);
  client.Send("bad\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 400);
  EXPECT_TRUE(DripsUntil(absl::Now() + 15 * kShort, &client));
}

}  // namespace

}  // namespace espalier::http
