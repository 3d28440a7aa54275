// CallbackThread: a thread that runs posted callbacks in order.
//
// Thread safety: any thread, at any time, also from within a callback.
#pragma once

#include <memory>
#include <thread>

#include "absl/functional/any_invocable.h"

namespace espalier {

class CallbackThread {
 public:
  using Work = absl::AnyInvocable<void() &&>;

  // Throws std::system_error where there is no thread to be had.
  CallbackThread();
  // Calls all that was posted, and ends. From within a callback it returns at
  // once, and the thread ends by itself.
  ~CallbackThread();

  // `work` is called once, and destroyed on the thread, too. What it throws is
  // dropped.
  void Post(Work work);

  // Returns when all that was posted before has been called; from within a
  // callback at once.
  void Drain();

  // True if called from a callback.
  bool IsThisThread() const;

 private:
  struct Queue;
  static void Run(Queue& queue);

  const std::shared_ptr<Queue> queue_;  // the thread's, too
  std::thread thread_;
};

}  // namespace espalier
