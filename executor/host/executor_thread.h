// ExecutorThread: the thread of a host executor, which runs posted tasks in
// order. A task may release the last owner of the thread; then nothing waits,
// and the thread ends by itself after the remaining tasks.
//
//   struct Worker { ...; ExecutorThread thread; };
//   worker->thread.Start(worker);   // the thread owns the worker, too
//   UntilThereIsMemory([&] { worker->thread.Post([] { ... }); });
//   worker->thread.End();           // no more tasks are posted
//
// Thread safety: Post from any thread; Start and End from one that owns it.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <thread>
#include <utility>

namespace espalier {

class ExecutorThread {
 public:
  // Starts the thread, which holds `owner` until it ends. Throws
  // std::system_error if the system has no more threads.
  // REQUIRES: it was not started; `owner` contains this.
  void Start(std::shared_ptr<const void> owner);

  // Runs `task` on the thread. Throws std::bad_alloc, leaving the thread as it
  // is.
  template <typename Task>
  void Post(Task task) {
    boost::asio::post(context_, std::move(task));
  }

  // Waits until all tasks have run, and ends the thread. On the thread itself
  // it does not wait: the thread ends after this task and the remaining ones.
  // Does nothing if the thread was not started.
  void End();

 private:
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
      more_tasks_{context_.get_executor()};
  std::thread thread_;
};

}  // namespace espalier
