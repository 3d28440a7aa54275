// Bytes for clients that read all, little, or nothing of them.
#include "http/socket_writer.h"

#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address_v4.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace espalier::http {
namespace {

namespace asio = boost::asio;
using Flushed = SocketWriter::Flushed;

class SocketWriterTest : public ::testing::Test {
 protected:
  SocketWriterTest() {
    asio::ip::tcp::acceptor acceptor(context_,
                                     {asio::ip::address_v4::loopback(), 0});
    client_.connect(acceptor.local_endpoint());
    acceptor.accept(socket_);
    client_.non_blocking(true);
    socket_.non_blocking(true);
  }

  bool Send(std::string_view part) {
    const std::string_view parts[] = {part};
    return writer_.Send(parts);
  }
  void StartFlush() {
    asio::co_spawn(
        context_,
        [this]() -> asio::awaitable<void> {
          flushed_ = co_await writer_.Flush();
        },
        asio::detached);
  }
  // Reads as the client while the writer flushes.
  std::string Receive(size_t num_bytes) {
    std::string received;
    std::vector<char> buffer(64 << 10);
    while (received.size() < num_bytes) {
      boost::system::error_code error;
      received.append(buffer.data(),
                      client_.read_some(asio::buffer(buffer), error));
      if (error && !IsTransient(error)) break;
      context_.restart();
      context_.run_for(error ? std::chrono::milliseconds(1)
                             : std::chrono::milliseconds(0));
    }
    return received;
  }

  asio::io_context context_;
  Socket client_{context_};
  Socket socket_{context_};
  Limits limits_;
  Counter counter_;
  SocketWriter writer_{&socket_, &limits_, &counter_};
  std::optional<Flushed> flushed_;
};

// More than the system's buffers of both ends take.
const std::string& Large() {
  static const std::string* const text = new std::string([] {
    std::string made(16 << 20, 'a');
    for (size_t i = 0; i < made.size(); ++i) {
      made[i] = static_cast<char>('a' + i % 23);
    }
    return made;
  }());
  return *text;
}

TEST_F(SocketWriterTest, WhatTheSystemTakesLeavesNothing) {
  const std::string_view parts[] = {"one ", "two ", "three"};
  EXPECT_TRUE(writer_.Send(parts));
  EXPECT_TRUE(writer_.is_empty());
  EXPECT_EQ(writer_.num_sent(), 13);
  EXPECT_EQ(counter_.value(), 13);
  EXPECT_EQ(Receive(13), "one two three");
}

TEST_F(SocketWriterTest, BytesComeInOrderHoweverSlowTheClientIs) {
  EXPECT_TRUE(writer_.Send("head ", Large()));
  EXPECT_FALSE(writer_.is_empty());
  EXPECT_TRUE(Send(" more"));  // after the rest, not before it
  EXPECT_TRUE(writer_.Send(" and ", "the end"));
  StartFlush();
  const std::string all = "head " + Large() + " more and the end";
  EXPECT_EQ(Receive(all.size()), all);
  EXPECT_EQ(flushed_, Flushed::kAll);
  EXPECT_TRUE(writer_.is_empty());
  EXPECT_EQ(writer_.num_sent(), static_cast<int64_t>(all.size()));
}

TEST_F(SocketWriterTest, AClientThatTakesNothingIsLateWhileItIsWaitedFor) {
  limits_.write_timeout = absl::Seconds(5);
  EXPECT_TRUE(Send(Large()));
  const auto soon = Clock::now() + std::chrono::seconds(4);
  const auto late = Clock::now() + std::chrono::seconds(60);
  EXPECT_FALSE(writer_.IsLate(late));
  StartFlush();
  context_.poll();
  EXPECT_FALSE(writer_.IsLate(soon));
  EXPECT_TRUE(writer_.IsLate(late));
  Receive(Large().size());
  EXPECT_EQ(flushed_, Flushed::kAll);
  EXPECT_FALSE(writer_.IsLate(late));
}

TEST_F(SocketWriterTest, AClientIsBehindOnlyWhileOthersWait) {
  limits_.crowded_write_timeout = absl::Seconds(2);
  EXPECT_TRUE(Send(Large()));
  const auto now = Clock::now();
  EXPECT_FALSE(writer_.IsBehind(now));
  EXPECT_FALSE(writer_.IsBehind(now + std::chrono::seconds(1)));
  EXPECT_TRUE(writer_.IsBehind(now + std::chrono::seconds(3)));
  writer_.ForgetLag();
  EXPECT_FALSE(writer_.IsBehind(now + std::chrono::seconds(4)));
  EXPECT_TRUE(writer_.IsBehind(now + std::chrono::seconds(7)));
}

TEST_F(SocketWriterTest, AClosedSocketEndsTheWait) {
  EXPECT_TRUE(Send(Large()));
  StartFlush();
  context_.poll();
  socket_.close();
  context_.restart();
  context_.poll();
  EXPECT_EQ(flushed_, Flushed::kCancelled);
  writer_.Drop();
  EXPECT_TRUE(writer_.is_empty());
}

TEST_F(SocketWriterTest, AClientThatHasGoneIsReported) {
  EXPECT_TRUE(Send(Large()));
  StartFlush();
  context_.poll();
  client_.set_option(asio::socket_base::linger(true, 0));
  client_.close();  // with a reset
  context_.restart();
  while (!flushed_) context_.run_one();
  EXPECT_EQ(flushed_, Flushed::kClientGone);
  writer_.Drop();
  EXPECT_FALSE(Send("more"));
}

}  // namespace
}  // namespace espalier::http
