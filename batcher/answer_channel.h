// How the engine's strand answers a coroutine that waits elsewhere.
#pragma once

#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/system/error_code.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"

namespace espalier {

// Carries one answer from the strand to a waiting coroutine.
template <typename T>
using AnswerChannel = boost::asio::experimental::concurrent_channel<void(
    boost::system::error_code, T)>;

// Sends to a channel that is still there. Only the coroutine owns its channel,
// which must not outlive the coroutine's context.
template <typename T>
std::function<void(T)> SendTo(std::weak_ptr<AnswerChannel<T>> channel) {
  return [channel = std::move(channel)](T value) {
    if (const auto open = channel.lock()) {
      open->try_send(boost::system::error_code(), std::move(value));
    }
  };
}

// What a coroutine that is cancelled while it waits is told.
inline absl::Status CancelledByCaller() {
  return MakeError(absl::StatusCode::kCancelled, "cancelled by its caller");
}

// Tells the engine when a coroutine stops waiting without an answer, also by
// being destroyed.
class CancelUnlessAnswered {
 public:
  explicit CancelUnlessAnswered(std::function<void()> cancel)
      : cancel_(std::move(cancel)) {}
  ~CancelUnlessAnswered() {
    if (cancel_ != nullptr) cancel_();
  }
  CancelUnlessAnswered(const CancelUnlessAnswered&) = delete;
  CancelUnlessAnswered& operator=(const CancelUnlessAnswered&) = delete;

  void Answered() { cancel_ = nullptr; }

 private:
  std::function<void()> cancel_;
};

}  // namespace espalier
