// ReadyQueue: answers of requests on their way to one thread of Python, which
// waits for a descriptor: an event loop by add_reader, others by Wait. The
// engine's threads push, and write the descriptor only where the queue was
// empty: they never take the GIL, and a step wakes the reader once at most.
//
// Thread safety: any thread may push; one takes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/generator.h"

namespace espalier::python {

class ReadyQueue {
 public:
  struct Ready {
    int64_t request = 0;
    // Unset: its stream has something to take.
    std::optional<absl::StatusOr<Generation>> answer = {};
  };

  // Errors: kResourceExhausted if the process has no descriptor left.
  static absl::StatusOr<std::shared_ptr<ReadyQueue>> Create();
  // Use Create.
  explicit ReadyQueue(int fd) : fd_(fd) {}
  ~ReadyQueue();
  ReadyQueue(const ReadyQueue&) = delete;
  ReadyQueue& operator=(const ReadyQueue&) = delete;

  // Readable while the queue is not empty.
  int fd() const { return fd_; }

  // Does not throw.
  void Push(Ready ready);
  // All that was pushed since the last call.
  std::vector<Ready> Take();
  // Waits until there is something to take, `milliseconds` at most; false if
  // there is nothing.
  bool Wait(int milliseconds) const;

 private:
  const int fd_;
  std::mutex mutex_;
  std::vector<Ready> ready_;  // guarded by mutex_
};

// Waits without the GIL, and looks for signals meanwhile; false after so many
// seconds. Raises what a signal raises.
bool WaitFor(const ReadyQueue& queue, double seconds);

}  // namespace espalier::python
