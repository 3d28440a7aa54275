// WakeTimer: calls a function on a context at a time that can be changed or
// cleared.
//
//   WakeTimer timer(executor, [] { ... });
//   timer.Set(now + std::chrono::seconds(2));
//   timer.Set(std::nullopt);  // the context's run() may return
//
// Thread safety: one caller at a time, which destroys the timer before the
// context's own shutdown ends (context_link.h). The function runs on any thread
// of the context, possibly just after its time was cleared, so it must check if
// there is something to do.
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

  // Throws std::bad_alloc; boost::system::system_error if the system has no
  // descriptors for the context's first timer.
  WakeTimer(const boost::asio::any_io_executor& executor,
            std::function<void()> on_time);

  // Calls the function once, at or after `when`, unless Set is called again
  // before that; nullopt: never. Waits for the memory that it needs.
  void Set(std::optional<Time> when);

 private:
  // Shared, because a wait that is cancelled too late outlives the timer.
  const std::shared_ptr<const std::function<void()>> on_time_;
  boost::asio::steady_timer timer_;
  std::optional<Time> when_;
};

}  // namespace espalier
