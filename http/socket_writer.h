// SocketWriter: bytes on their way to a client. They are handed to the system
// at once as far as it takes them; the rest waits here, for a client that reads
// slowly, until a deadline.
//
//   if (!writer.Send(parts)) ...            // the client has gone
//   if (!writer.is_empty()) co_await writer.Flush();
//
// Thread safety: one thread, that of the socket's executor.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "http/counters.h"
#include "http/limits.h"
#include "http/socket.h"

namespace espalier::http {

class SocketWriter {
 public:
  // All outlive it. `num_sent` counts the bytes that the system takes.
  SocketWriter(Socket* socket, const Limits* limits, Counter* num_sent)
      : socket_(socket), limits_(limits), counter_(num_sent) {}
  SocketWriter(const SocketWriter&) = delete;
  SocketWriter& operator=(const SocketWriter&) = delete;

  // Sends the parts after all that is unsent. Returns false if the client has
  // gone. Throws std::bad_alloc if the rest cannot be kept; the client may have
  // the beginning then, and must not get anything else.
  // REQUIRES: at most three parts.
  bool Send(std::span<const std::string_view> parts);
  // As above; moves the unsent rest of a long body instead of copying it.
  bool Send(std::string_view head, std::string body);

  // True if the system has taken all of it.
  bool is_empty() const { return unsent_.empty(); }

  enum class Flushed {
    kAll,
    kCancelled,   // the wait, or the socket was closed; the next call continues
    kClientGone,  // no more can be sent
  };
  // Waits until the system has taken what is unsent.
  boost::asio::awaitable<Flushed> Flush();

  // Drops what is unsent, and frees its memory.
  void Drop();

  // Bytes handed to the system so far.
  int64_t num_sent() const { return num_sent_; }

  // True if Flush waits for a client that has taken nothing, or less than
  // Limits::min_write_rate, for Limits::write_timeout.
  bool IsLate(Clock::time_point now) const { return now >= deadline_; }
  // True if the client has not taken in time what it was sent while others
  // wait (Limits::crowded_write_timeout). Time counts from the first call.
  bool IsBehind(Clock::time_point now);
  // No others wait: time counts from the next call of IsBehind.
  void ForgetLag() { lag_.reset(); }

 private:
  size_t SendSome(std::span<const std::string_view> parts,
                  boost::system::error_code* error);
  // Bytes of those handed to the system that the client's system has
  // acknowledged.
  int64_t NumTaken() const;

  Socket* const socket_;
  const Limits* const limits_;
  Counter* const counter_;

  std::string unsent_;  // from unsent_begin_ on
  size_t unsent_begin_ = 0;
  Clock::time_point deadline_ = Clock::time_point::max();
  int64_t num_sent_ = 0;
  // Once the client has taken `goal` bytes, the next goal is what was sent by
  // then. Unset while no others wait.
  struct Lag {
    Clock::time_point begin;
    int64_t begin_taken;  // bytes
    int64_t goal;
    Clock::time_point changed;  // when it was seen to have taken something
    int64_t num_taken;
  };
  std::optional<Lag> lag_;
};

}  // namespace espalier::http
