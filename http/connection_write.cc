// Connection: writing.
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/time/time.h"
#include "http/connection.h"
#include "http/limits.h"
#include "http/logged_answer.h"
#include "http/response_head.h"
#include "http/worker.h"

namespace espalier::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// After so many events that did not have to wait for the client, other
// connections have their turn.
constexpr int kMaxSendsInARow = 32;

}  // namespace

asio::awaitable<bool> Connection::Respond(Response response) {
  if (client_gone()) co_return false;
  const bool has_body = !is_head_ && !HasNoBody(response.status);
  const std::string_view head = MakeHead(response, BodyFraming::kLength);
  if (!Send(head, has_body ? std::move(response.body) : std::string())) {
    co_return false;
  }
  is_answered_ = true;
  if (unsent_.empty()) co_return true;
  co_return co_await Flush();
}

asio::awaitable<bool> Connection::BeginStream(Response head) {
  if (client_gone()) co_return false;
  const std::string_view parts[] = {MakeHead(
      head, is_http_1_0_ ? BodyFraming::kUntilClose : BodyFraming::kChunked)};
  if (!Send(parts)) co_return false;
  sends_pieces_ = true;
  if (unsent_.empty()) co_return true;
  co_return co_await Flush();
}

asio::awaitable<bool> Connection::SendPiece(std::string_view piece) {
  if (client_gone()) co_return false;
  if (is_head_ || piece.empty()) co_return true;
  if (is_http_1_0_) {
    const std::string_view parts[] = {piece};
    if (!Send(parts)) co_return false;
  } else {
    char size[24];
    const int length =
        std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
    const std::string_view parts[] = {
        std::string_view(size, static_cast<size_t>(length)), piece, "\r\n"};
    if (!Send(parts)) co_return false;
  }
  if (!unsent_.empty()) {
    sends_in_a_row_ = 0;
    co_return co_await Flush();
  }
  if (++sends_in_a_row_ == kMaxSendsInARow) {
    sends_in_a_row_ = 0;
    co_await asio::post(socket_.get_executor(), asio::use_awaitable);
  }
  co_return !client_gone();
}

std::string_view Connection::MakeHead(const Response& response,
                                      BodyFraming framing) {
  close_after_ = !keep_alive_ || response.close ||
                 framing == BodyFraming::kUntilClose ||
                 reader_ != nullptr ||  // the rest of a body may follow
                 worker_->shared().draining;
  const int status_class = std::clamp(response.status / 100, 0, 5);
  worker_->counts().responses[status_class].Add(1);
  if (logged_ != nullptr) logged_->status = response.status;
  std::string& head = worker_->head_buffer();
  head.clear();
  AppendResponseHead(response,
                     {.body = framing,
                      .close = close_after_,
                      .says_keep_alive = is_http_1_0_ && !close_after_},
                     worker_->date(), &head);
  return head;
}

bool Connection::Send(std::span<const std::string_view> parts) {
  error_code error;
  size_t sent = 0;
  if (unsent_.empty()) {
    sent = SendSome(parts, &error);
    if (error && !IsTransient(error)) {
      DropClient();
      return false;
    }
  }
  try {
    for (std::string_view part : parts) {
      const size_t skipped = std::min(sent, part.size());
      sent -= skipped;
      unsent_.append(part.substr(skipped));
    }
  } catch (...) {
    // The client may have the beginning, and must not get anything else.
    Close();
    throw;
  }
  return true;
}

bool Connection::Send(std::string_view head, std::string body) {
  const std::string_view parts[] = {head, body};
  if (!unsent_.empty()) return Send(parts);
  error_code error;
  const size_t sent = SendSome(parts, &error);
  if (error && !IsTransient(error)) {
    DropClient();
    return false;
  }
  if (sent == head.size() + body.size()) return true;
  if (sent < head.size()) body.insert(0, head.substr(sent));
  unsent_begin_ = sent < head.size() ? 0 : sent - head.size();
  unsent_ = std::move(body);
  return true;
}

size_t Connection::SendSome(std::span<const std::string_view> parts,
                            error_code* error) {
  std::array<asio::const_buffer, 3> buffers;
  for (size_t i = 0; i < parts.size(); ++i) {
    buffers[i] = asio::const_buffer(parts[i].data(), parts[i].size());
  }
  const size_t sent = socket_.write_some(buffers, *error);
  worker_->counts().bytes_sent.Add(static_cast<int64_t>(sent));
  num_sent_ += static_cast<int64_t>(sent);
  if (logged_ != nullptr) logged_->num_bytes += static_cast<int64_t>(sent);
  return sent;
}

asio::awaitable<bool> Connection::Flush() {
  const Limits& limits = worker_->limits();
  const Clock::time_point first_deadline = After(limits.write_timeout);
  int64_t num_taken = 0;
  write_deadline_ = first_deadline;
  while (unsent_begin_ < unsent_.size()) {
    const auto [wait_error] = co_await socket_.async_wait(
        Socket::wait_write, asio::as_tuple(asio::use_awaitable));
    if (wait_error || client_gone()) {
      // If only this write was cancelled, the next one continues here.
      write_deadline_ = Clock::time_point::max();
      co_return false;
    }
    error_code error;
    const std::string_view rest[] = {
        std::string_view(unsent_).substr(unsent_begin_)};
    const size_t sent = SendSome(rest, &error);
    if (error && !IsTransient(error)) {
      DropClient();
      co_return false;
    }
    unsent_begin_ += sent;
    if (sent == 0) continue;
    num_taken += static_cast<int64_t>(sent);
    write_deadline_ =
        std::min(After(limits.write_timeout),
                 first_deadline +
                     std::chrono::seconds(num_taken / limits.min_write_rate));
  }
  unsent_.clear();
  unsent_begin_ = 0;
  write_deadline_ = Clock::time_point::max();
  co_return true;
}

bool Connection::IsBehind(Clock::time_point now) {
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
  const Limits& limits = worker_->limits();
  const absl::Duration patience = limits.crowded_write_timeout;
  const absl::Duration for_taken =
      absl::Seconds((num_taken - lag_->begin_taken) / limits.min_write_rate);
  return absl::FromChrono(now - lag_->changed) >= patience ||
         absl::FromChrono(now - lag_->begin) >= patience + for_taken;
}

int64_t Connection::NumTaken() const {
  int num_held = 0;
  // It fails for a socket other than TCP, whose bytes count as acknowledged.
  ioctl(const_cast<Socket&>(socket_).native_handle(), SIOCOUTQ, &num_held);
  return num_sent_ - num_held;
}

void Connection::CutSlowReader() {
  worker_->counts().slow_readers.Add(1);
  if (logged_ != nullptr) {
    logged_->note += logged_->note.empty() ? "slow" : " slow";
  }
  // Drops the bytes that the system holds for the client, too.
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  DropClient();
}

}  // namespace espalier::http
