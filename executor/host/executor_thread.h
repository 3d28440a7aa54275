// ExecutorThread: the thread of a host executor, which runs what is posted to
// it, in order. What is run on it may let go of the last owner of the thread;
// then nothing waits, and the thread ends by itself when it has run the rest.
//
//   struct Worker { ...; ExecutorThread thread; };
//   worker->thread.Start(worker);   // the thread has a part in the worker
//   UntilThereIsMemory([&] { worker->thread.Post([] { ... }); });
//   worker->thread.End();           // no more is posted
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
  // Starts the thread, which holds `owner`, of whom this is a part, until it
  // ends. REQUIRES: it was not started.
  // Throws std::system_error if there is no thread to be had.
  void Start(std::shared_ptr<const void> owner);

  // Runs `task` on the thread. Throws std::bad_alloc, leaving the thread as it
  // is.
  template <typename Task>
  void Post(Task task) {
    boost::asio::post(context_, std::move(task));
  }

  // Waits until all tasks have run; on the thread itself, waits for nothing:
  // it ends when this has returned and the others have run. Does nothing more
  // if it did not start.
  void End();

 private:
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
      more_tasks_{context_.get_executor()};
  std::thread thread_;
};

}  // namespace espalier
