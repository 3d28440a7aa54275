#include "http/socket_writer.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "absl/time/time.h"

namespace espalier::http {

namespace asio = boost::asio;
using boost::system::error_code;

bool SocketWriter::Send(std::span<const std::string_view> parts) {
  error_code error;
  size_t sent = 0;
  if (unsent_.empty()) {
    sent = SendSome(parts, &error);
    if (error && !IsTransient(error)) return false;
  }
  for (std::string_view part : parts) {
    const size_t skipped = std::min(sent, part.size());
    sent -= skipped;
    unsent_.append(part.substr(skipped));
  }
  return true;
}

bool SocketWriter::Send(std::string_view head, std::string body) {
  const std::string_view parts[] = {head, body};
  if (!unsent_.empty()) return Send(parts);
  error_code error;
  const size_t sent = SendSome(parts, &error);
  if (error && !IsTransient(error)) return false;
  if (sent == head.size() + body.size()) return true;
  if (sent < head.size()) body.insert(0, head.substr(sent));
  unsent_begin_ = sent < head.size() ? 0 : sent - head.size();
  unsent_ = std::move(body);
  return true;
}

size_t SocketWriter::SendSome(std::span<const std::string_view> parts,
                              error_code* error) {
  std::array<asio::const_buffer, 3> buffers;
  for (size_t i = 0; i < parts.size(); ++i) {
    buffers[i] = asio::const_buffer(parts[i].data(), parts[i].size());
  }
  const auto sent = static_cast<int64_t>(socket_->write_some(buffers, *error));
  counter_->Add(sent);
  num_sent_ += sent;
  return static_cast<size_t>(sent);
}

asio::awaitable<SocketWriter::Flushed> SocketWriter::Flush() {
  const Clock::time_point first_deadline = After(limits_->write_timeout);
  int64_t num_taken = 0;
  deadline_ = first_deadline;
  while (unsent_begin_ < unsent_.size()) {
    const auto [wait_error] = co_await socket_->async_wait(
        Socket::wait_write, asio::as_tuple(asio::use_awaitable));
    if (wait_error || !socket_->is_open()) {
      deadline_ = Clock::time_point::max();
      co_return Flushed::kCancelled;
    }
    error_code error;
    const std::string_view rest[] = {
        std::string_view(unsent_).substr(unsent_begin_)};
    const size_t sent = SendSome(rest, &error);
    if (error && !IsTransient(error)) co_return Flushed::kClientGone;
    unsent_begin_ += sent;
    if (sent == 0) continue;
    num_taken += static_cast<int64_t>(sent);
    deadline_ =
        std::min(After(limits_->write_timeout),
                 first_deadline +
                     std::chrono::seconds(num_taken / limits_->min_write_rate));
  }
  unsent_.clear();
  unsent_begin_ = 0;
  deadline_ = Clock::time_point::max();
  co_return Flushed::kAll;
}

void SocketWriter::Drop() {
  unsent_ = std::string();
  unsent_begin_ = 0;
}

bool SocketWriter::IsBehind(Clock::time_point now) {
  const int64_t num_taken = NumTaken();
  if (!lag_.has_value() || num_taken >= lag_->goal) {
    const auto num_unsent =
        static_cast<int64_t>(unsent_.size() - unsent_begin_);
    lag_ = {now, num_taken, num_sent_ + num_unsent, now, num_taken};
    return false;
  }
  if (num_taken > lag_->num_taken) {
    lag_->changed = now;
    lag_->num_taken = num_taken;
  }
  const absl::Duration patience = limits_->crowded_write_timeout;
  const absl::Duration for_taken =
      absl::Seconds((num_taken - lag_->begin_taken) / limits_->min_write_rate);
  return absl::FromChrono(now - lag_->changed) >= patience ||
         absl::FromChrono(now - lag_->begin) >= patience + for_taken;
}

int64_t SocketWriter::NumTaken() const {
  int num_held = 0;
  // It fails for a socket other than TCP, whose bytes count as acknowledged.
  ioctl(socket_->native_handle(), SIOCOUTQ, &num_held);
  return num_sent_ - num_held;
}

}  // namespace espalier::http
