#include "examples/cli/output/progress_ticks.h"

#include <chrono>
#include <utility>

namespace espalier::cli {

ProgressTicks::ProgressTicks(boost::asio::io_context& context,
                             Progress* progress)
    : shared_(std::make_shared<Shared>(
          Shared{boost::asio::steady_timer(context), progress})) {
  Wait(shared_);
}

ProgressTicks::~ProgressTicks() {
  shared_->progress = nullptr;
  shared_->timer.cancel();
}

void ProgressTicks::Wait(std::shared_ptr<Shared> shared) {
  shared->timer.expires_after(std::chrono::seconds(1));
  boost::asio::steady_timer& timer = shared->timer;
  timer.async_wait([shared = std::move(shared)](boost::system::error_code) {
    if (shared->progress == nullptr) return;
    shared->progress->Tick();
    Wait(shared);
  });
}

}  // namespace espalier::cli
