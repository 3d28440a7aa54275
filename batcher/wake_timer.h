// WakeTimer: calls a function on a context at a time that can be changed, or
// taken back.
//
//   WakeTimer timer(executor, [] { ... });
//   timer.Set(now + std::chrono::seconds(2));
//   timer.Set(std::nullopt);  // the context's run() may return
//
// Thread safety: one caller at a time, who destroys it before the end of the
// context's own shutdown (context_link.h). The function runs on any thread of
// the context, also just after its time was taken back: it looks for itself
// whether there is something to do.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace espalier {

class WakeTimer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Throws std::bad_alloc; boost::system::system_error where the system has no
  // descriptors for the context's first timer.
  WakeTimer(const boost::asio::any_io_executor& executor,
            std::function<void()> on_time);

  // Calls the function once, at or after `when`, unless it is set again before;
  // nullopt: never. Waits for the memory that it takes.
  void Set(std::optional<Time> when);

 private:
  // Outlives the timer in a wait that was cancelled too late.
  const std::shared_ptr<const std::function<void()>> on_time_;
  boost::asio::steady_timer timer_;
  std::optional<Time> when_;
};

}  // namespace espalier
