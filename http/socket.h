// The socket of a connection, and the clock of its time-outs.
#pragma once

#include <algorithm>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>

#include "absl/time/time.h"

namespace espalier::http {

using Socket =
    boost::asio::basic_stream_socket<boost::asio::ip::tcp,
                                     boost::asio::io_context::executor_type>;
using Clock = std::chrono::steady_clock;

// Returns the time after `duration`. Infinite durations end after a year, so
// that sums do not overflow.
inline Clock::time_point After(absl::Duration duration) {
  return Clock::now() +
         absl::ToChronoNanoseconds(std::min(duration, absl::Hours(24 * 365)));
}

// True for errors after which the call is to be tried again.
inline bool IsTransient(const boost::system::error_code& error) {
  return error == boost::asio::error::would_block ||
         error == boost::asio::error::try_again ||
         error == boost::asio::error::interrupted;
}

}  // namespace espalier::http
