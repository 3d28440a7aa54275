#include "python/src/ready_queue.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "base/memory.h"
#include "python/src/interpreter.h"

namespace espalier::python {

absl::StatusOr<std::shared_ptr<ReadyQueue>> ReadyQueue::Create() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    return absl::ResourceExhaustedError(
        std::string("no descriptor for answers: ") + std::strerror(errno));
  }
  return std::make_shared<ReadyQueue>(fd);
}

ReadyQueue::~ReadyQueue() { close(fd_); }

void ReadyQueue::Push(Ready ready) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool was_empty = ready_.empty();
  UntilThereIsMemory([&] {
    ready_.push_back(std::move(ready));
    return true;
  });
  // Fails only where the counter is full, which is readable, too.
  if (was_empty) eventfd_write(fd_, 1);
}

std::vector<ReadyQueue::Ready> ReadyQueue::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  eventfd_t count = 0;
  eventfd_read(fd_, &count);
  return std::exchange(ready_, {});
}

bool ReadyQueue::Wait(int milliseconds) const {
  pollfd entry = {fd_, POLLIN, 0};
  return poll(&entry, 1, milliseconds) > 0;
}

bool WaitFor(const ReadyQueue& queue, double seconds) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(std::min(seconds, 1e8));
  bool is_ready = false;
  bool is_interrupted = false;
  WaitInterruptibly(
      [&] {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            end - std::chrono::steady_clock::now());
        const auto slice = std::clamp<std::chrono::milliseconds>(
            left, std::chrono::milliseconds(0), kBetweenSignals);
        is_ready = queue.Wait(static_cast<int>(slice.count()));
        return is_ready || is_interrupted || left.count() <= 0;
      },
      [&] { is_interrupted = true; }, [] {});
  return is_ready;
}

}  // namespace espalier::python
