// Limits of the memory, connections and time that one client, and all clients
// together, take of a server. A request beyond one gets the status named here.
// Time-outs may be late by a tenth of a second, or by an eighth of the shortest
// of them where that is less.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "http/message.h"

namespace espalier::http {

// Names of the options that set limits, for messages: "--max-body-bytes". An
// empty one is left out.
struct LimitNames {
  std::string_view max_header_bytes = {};
  std::string_view max_headers = {};
  std::string_view max_body_bytes = {};
  std::string_view max_connections = {};
  std::string_view header_timeout = {};
  std::string_view body_timeout = {};
};

// A limit of a request with the name of its option.
struct NamedLimit {
  int64_t value = 0;
  std::string_view name = {};
};

// Returns " (--max-body-bytes)"; "" of an empty name.
std::string InParentheses(std::string_view name);
// Returns "must have at most 10 bytes (--max-body-bytes), got 11".
std::string MustHaveAtMost(const NamedLimit& limit, std::string_view unit,
                           std::string_view got = "more");

struct Limits {
  // The request line and headers together; also the trailers of a chunked body,
  // and the line before each of its chunks. 431 beyond.
  int64_t max_header_bytes = 16 << 10;
  // Header lines of a request. 431 beyond. As in hyper and Apache.
  int64_t max_headers = 100;
  // 413 beyond: at once where Content-Length says so, else as the chunks come.
  int64_t max_body_bytes = 16 << 20;
  // All bodies that are on their way, together. 503 beyond, for those that
  // would grow; a body that has come whole is its handler's.
  int64_t max_unread_bytes = 1 << 30;
  // All threads together. One more is answered with 503 and closed.
  int max_connections = 16384;

  // From the first byte of a request to the end of its headers. 408 beyond.
  absl::Duration header_timeout = absl::Seconds(10);
  // From the end of the headers to the end of the body, to which each
  // min_body_rate bytes that came add a second. 408 beyond.
  absl::Duration body_timeout = absl::Seconds(30);
  int64_t min_body_rate = 64 << 10;  // bytes a second
  // Before the first byte of a request; then the connection is closed.
  absl::Duration idle_timeout = absl::Seconds(75);
  // A client that takes nothing of an answer for so long is cut off. So is one
  // that is slow: from where it has to be waited for until it has taken all
  // that was sent so far it has this time, and a second for each min_write_rate
  // bytes that it took.
  absl::Duration write_timeout = absl::Seconds(30);
  int64_t min_write_rate = 4 << 10;  // bytes a second
  // Time for all that was sent to the client of an exchange that holds a place
  // (Exchange::set_holds_place), while others wait
  // (ServerOptions::others_wait): bytes that the system still holds count as
  // not taken.
  absl::Duration crowded_write_timeout = absl::Seconds(5);
  // After an answer that ends a connection, what the client still sends is read
  // and dropped, so that the answer is not lost to a reset: as long as no gap
  // between its bytes is longer than linger_timeout, up to max_linger in all.
  // A connection beyond max_connections has linger_timeout in all, and so has
  // each beyond the first max_lingering of the others that linger.
  absl::Duration linger_timeout = absl::Seconds(2);
  absl::Duration max_linger = absl::Seconds(30);
  int max_lingering = 1024;

  // Bytes of an answer that the system may hold for a client that does not
  // read: the socket's send buffer. 0: the system's choice, megabytes.
  int64_t max_unsent_bytes = 256 << 10;

  LimitNames names = {};

  // Errors: kInvalidArgument naming the limit that is not positive, and its
  // value.
  absl::Status Check() const;
};

// The most bytes of a body that its handler reads as it arrives
// (Exchange::ReadBody); nothing for any other, which is read before its handler
// starts, up to Limits::max_body_bytes. Called with the head, on any thread;
// must not throw.
using StreamedBodyLimit =
    std::function<std::optional<NamedLimit>(const Request& head)>;

}  // namespace espalier::http
