#include "batcher/wake_timer.h"

#include <utility>

#include "base/memory.h"

namespace espalier {

WakeTimer::WakeTimer(const boost::asio::any_io_executor& executor,
                     std::function<void()> on_time)
    : on_time_(
          std::make_shared<const std::function<void()>>(std::move(on_time))),
      timer_(executor) {}

void WakeTimer::Set(std::optional<Time> when) {
  if (when == when_) return;
  when_ = when;
  timer_.cancel();
  if (!when.has_value()) return;
  timer_.expires_at(*when);
  UntilThereIsMemory([this] {
    timer_.async_wait(
        [on_time = on_time_](const boost::system::error_code& error) {
          if (!error) (*on_time)();
        });
  });
}

}  // namespace espalier
