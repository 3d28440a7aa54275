// Bodies that a handler reads as they arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "base/status.h"
#include "http/server.h"
#include "tests/http/raw_client.h"
#include "tests/http/test_server.h"

namespace espalier::http {

namespace asio = boost::asio;

namespace {

using ::testing::HasSubstr;

constexpr int64_t kMost = 4 << 20;
constexpr size_t kPieceBytes = 64 << 10;

// Streams the bodies of "/p", and answers with their size and last bytes.
class StreamedBodyTest : public ::testing::Test {
 protected:
  struct Ended {
    explicit Ended(std::atomic<int>* ends) : count(ends) {}
    Ended(const Ended&) = delete;
    Ended& operator=(const Ended&) = delete;
    ~Ended() { ++*count; }
    std::atomic<int>* const count;
  };

  asio::awaitable<void> Read(Exchange& exchange) {
    ++num_begun_;
    const Ended ended(&num_ended_);
    size_t size = 0;
    std::string last;
    while (true) {
      while (is_held_) {
        asio::steady_timer timer(exchange.executor(),
                                 std::chrono::milliseconds(1));
        co_await timer.async_wait(asio::use_awaitable);
      }
      const std::string piece = co_await exchange.ReadBody();
      if (piece.empty()) break;
      EXPECT_LE(piece.size(), kPieceBytes);
      size += piece.size();
      last += piece.substr(piece.size() - std::min<size_t>(piece.size(), 2));
      last.erase(0, last.size() - std::min<size_t>(last.size(), 2));
      if (answers_early_) break;
    }
    ++num_whole_;
    Response response;
    response.content_type = "text/plain";
    response.body = Concat(size, " ", last);
    co_await exchange.Respond(std::move(response));
  }

  std::unique_ptr<Server> Start(Limits limits = {}) {
    limits.max_body_bytes = 10;
    ServerOptions options;
    options.limits = limits;
    options.streamed_body_limit =
        [](const Request& head) -> std::optional<NamedLimit> {
      if (head.path == "/p") return NamedLimit{kMost, "--most"};
      return std::nullopt;
    };
    return StartServer(
        [this](Exchange& exchange) -> asio::awaitable<void> {
          if (exchange.request().path != "/p") return Echo(exchange);
          return Read(exchange);
        },
        options);
  }
  static std::string Head(std::string_view headers) {
    return Concat("POST /p HTTP/1.1\r\nHost: h\r\n", headers, "\r\n");
  }
  static std::string Chunks(size_t size, size_t chunk) {
    std::string text;
    for (size_t i = 0; i < size; i += chunk) {
      const size_t count = std::min(chunk, size - i);
      char line[24];
      std::snprintf(line, sizeof line, "%zx\r\n", count);
      text += line + std::string(count, 'b') + "\r\n";
    }
    return text + "0\r\n\r\n";
  }

  std::atomic<int> num_begun_ = 0;
  std::atomic<int> num_ended_ = 0;
  std::atomic<int> num_whole_ = 0;
  std::atomic<bool> is_held_ = false;
  std::atomic<bool> answers_early_ = false;
};

TEST_F(StreamedBodyTest, ComesWholeHoweverItIsSent) {
  const auto server = Start();
  RawClient client(server->port());
  for (const size_t size :
       {size_t{0}, size_t{1}, kPieceBytes, size_t{1'000'000}, size_t{kMost}}) {
    client.Send(Post(std::string(size, 'b')));
    EXPECT_THAT(client.Receive().body, HasSubstr(Concat(size, " ")));
    client.Send(Head("Transfer-Encoding: chunked\r\n") + Chunks(size, 10'000));
    EXPECT_THAT(client.Receive().body, HasSubstr(Concat(size, " ")));
  }
  // With others behind them, cut anywhere.
  const std::string text = Post("abc") + Get() +
                           Head("Transfer-Encoding: chunked\r\n") +
                           Chunks(7, 3) + Get();
  for (size_t at = 0; at <= text.size(); ++at) {
    client.Send(text.substr(0, at));
    if (at % 4 == 0) absl::SleepFor(absl::Milliseconds(1));
    client.Send(text.substr(at));
    EXPECT_EQ(client.Receive().body, "3 bc") << at;
    EXPECT_EQ(client.Receive().body, "GET /\n") << at;
    EXPECT_EQ(client.Receive().body, "7 bb") << at;
    EXPECT_EQ(client.Receive().body, "GET /\n") << at;
  }
  EXPECT_EQ(server->stats().accepted_connections, 1);
}

TEST_F(StreamedBodyTest, IsReadAheadByOnePieceAtMost) {
  is_held_ = true;
  const auto server = Start();
  RawClient client(server->port());
  std::thread sending([&] { client.Send(Post(std::string(kMost, 'b'))); });
  EXPECT_TRUE(Eventually([&] { return num_begun_ == 1; }));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_LE(server->stats().bytes_received, std::ssize(Post("")) + 65536);
  is_held_ = false;
  sending.join();
  EXPECT_EQ(client.Receive().body, Concat(kMost, " bb"));
}

TEST_F(StreamedBodyTest, IsAskedFor) {
  const auto server = Start();
  RawClient client(server->port());
  client.Send(Head("Expect: 100-continue\r\nContent-Length: 2\r\n"));
  EXPECT_EQ(client.Receive().status, 100);
  client.Send("ab");
  EXPECT_EQ(client.Receive().body, "2 ab");
}

TEST_F(StreamedBodyTest, IsRefusedBeyondItsLimit) {
  const auto server = Start();
  RawClient told(server->port());
  told.Send(Head(Concat("Content-Length: ", kMost + 1, "\r\n")));
  const RawResponse refused = told.Receive();
  EXPECT_EQ(refused.status, 413);
  EXPECT_THAT(refused.body,
              HasSubstr("at most 4194304 bytes (--most), got 4194305"));
  EXPECT_TRUE(told.WaitForEnd());
  EXPECT_EQ(num_begun_, 0);
  RawClient chunked(server->port());
  chunked.Send(Head("Transfer-Encoding: chunked\r\n") +
               Chunks(kMost + 1, 100'000));
  EXPECT_EQ(chunked.Receive().status, 413);
  EXPECT_TRUE(chunked.WaitForEnd());
  RawClient bad(server->port());
  bad.Send(Head("Transfer-Encoding: chunked\r\n") + "3\r\nabc");
  EXPECT_TRUE(Eventually([&] { return num_begun_ == 2; }));
  bad.Send("x");
  EXPECT_EQ(bad.Receive().status, 400);
  EXPECT_TRUE(Eventually([&] { return num_ended_ == 2; }));
  EXPECT_EQ(num_whole_, 0);
  // Other bodies have the limit of all.
  RawClient other(server->port());
  other.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n");
  EXPECT_EQ(other.Receive().status, 413);
}

TEST_F(StreamedBodyTest, HandlerEndsWithItsClient) {
  const auto server = Start();
  int num_clients = 0;
  for (const bool is_held : {false, true}) {
    for (const bool is_reset : {false, true}) {
      is_held_ = is_held;
      RawClient client(server->port());
      client.Send(Head("Content-Length: 100\r\n") + "half of it");
      ++num_clients;
      EXPECT_TRUE(Eventually([&] { return num_begun_ == num_clients; }));
      is_reset ? client.Reset() : client.FinishSending();
      EXPECT_TRUE(Eventually([&] { return num_ended_ == num_clients; }));
    }
  }
  EXPECT_EQ(num_whole_, 0);
}

TEST_F(StreamedBodyTest, IsRefusedIfItIsLate) {
  Limits limits;
  limits.body_timeout = absl::Milliseconds(30);
  const auto server = Start(limits);
  RawClient client(server->port());
  client.Send(Head("Content-Length: 100\r\n") + "half of it");
  EXPECT_EQ(client.Receive().status, 408);
  EXPECT_TRUE(client.WaitForEnd());
  EXPECT_EQ(server->stats().timeouts, 1);
  EXPECT_EQ(num_whole_, 0);
  // The time that a handler takes does not count.
  is_held_ = true;
  RawClient slow(server->port());
  slow.Send(Head("Content-Length: 2\r\n") + "a");
  EXPECT_TRUE(Eventually([&] { return num_begun_ == 2; }));
  absl::SleepFor(absl::Milliseconds(60));
  is_held_ = false;
  absl::SleepFor(absl::Milliseconds(5));
  slow.Send("b");
  EXPECT_EQ(slow.Receive().body, "2 ab");
}

TEST_F(StreamedBodyTest, AnswerBeforeItsEndEndsTheConnection) {
  answers_early_ = true;
  const auto server = Start();
  RawClient client(server->port());
  client.Send(Head("Content-Length: 1000000\r\n") + std::string(1000, 'b'));
  const RawResponse response = client.Receive();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.Find("Connection"), "close");
  EXPECT_TRUE(client.WaitForEnd());
}

}  // namespace
}  // namespace espalier::http
