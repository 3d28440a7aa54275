#include "python/src/ready_queue.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "base/memory.h"

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

}  // namespace espalier::python
