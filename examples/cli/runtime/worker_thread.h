// WorkerThread: a thread that runs the work posted to its context and survives
// std::bad_alloc. Asio allocates when it hands a coroutine to another thread;
// without memory it drops the coroutine and throws, which would end a program
// that uses asio::thread_pool.
//
//   WorkerThread thread;
//   asio::co_spawn(thread.context(), Work(), OnEnd());
//
// So a completion handler that has to be called says in its destructor that it
// never was.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <new>
#include <thread>

namespace espalier::cli {

class WorkerThread {
 public:
  // Throws std::system_error if there can be no thread.
  WorkerThread() : work_(context_.get_executor()), thread_([this] { Run(); }) {}
  // Waits for the running handler. Posted work that has not begun is dropped.
  ~WorkerThread() {
    context_.stop();
    thread_.join();
  }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  boost::asio::io_context& context() { return context_; }

 private:
  void Run() {
    while (!context_.stopped()) {
      try {
        context_.run();
      } catch (const std::bad_alloc&) {
      }
    }
  }

  boost::asio::io_context context_{1};
  const boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
      work_;
  std::thread thread_;
};

}  // namespace espalier::cli
