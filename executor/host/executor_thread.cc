#include "executor/host/executor_thread.h"

#include <cerrno>
#include <system_error>

#include "base/fault_injection.h"

namespace espalier {

void ExecutorThread::Start(std::shared_ptr<const void> owner) {
  if (FaultInjected(FaultPoint::kStartThread)) {
    throw std::system_error(EAGAIN, std::generic_category());
  }
  thread_ = std::thread([this, owner = std::move(owner)] { context_.run(); });
}

void ExecutorThread::End() {
  more_tasks_.reset();
  if (!thread_.joinable()) return;  // it did not start
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

}  // namespace espalier
