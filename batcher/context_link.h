// ContextLink: a handle to an executor whose context may end first.
//
// asio requires that a context lives while another thread posts to it. An
// engine cannot test that: the owners of its context, and of the contexts of
// waiting coroutines, may end them while other threads are about to answer. So
// all posts from outside use a link. The end of the context closes its links:
// it waits for the posts in progress, and later posts do not reach it.
//
// Only for engines and their parts. asio itself forbids ending a context that
// several threads still run.
//
//   ContextLink link(executor, [] { ... });  // the context has ended
//   if (!link.Post([] { ... })) ...          // it had ended before
//
// Thread safety: any thread, at any time.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace espalier {

class ContextGate;

class ContextLink {
 public:
  using Executor = boost::asio::any_io_executor;

  // The thread that destroys the context calls `on_end` first, unless the link
  // is destroyed before. `on_end` may destroy the link. REQUIRES: the context
  // exists.
  ContextLink(const Executor& executor, std::function<void()> on_end);
  ~ContextLink();
  ContextLink(const ContextLink&) = delete;
  ContextLink& operator=(const ContextLink&) = delete;

  // Posts to the executor. After the context's end, destroys `work` and returns
  // false. If asio throws for lack of memory, `work` is unused.
  template <typename Work>
  bool Post(Work work);

  // Calls use(executor) unless the context has ended.
  template <typename Use>
  void WithExecutor(const Use& use);

  // Between Hold and Release the context's run() does not return, as if work
  // were posted.
  void Hold();
  void Release();

 private:
  friend class ContextGate;

  // Members that must not outlive the context, released by its gate.
  struct Ends {
    Executor executor;
    std::optional<Executor> held;
  };
  struct Entry {
    std::optional<Ends> ends;  // set until the context ends
    std::function<void()> on_end;
  };

  std::mutex& mutex() const;  // shared by all entries of the context

  const std::shared_ptr<ContextGate> gate_;
  const std::shared_ptr<Entry> entry_;
};

template <typename Work>
bool ContextLink::Post(Work work) {
  const std::lock_guard<std::mutex> lock(mutex());
  if (!entry_->ends.has_value()) return false;
  boost::asio::post(entry_->ends->executor, std::move(work));
  return true;
}

template <typename Use>
void ContextLink::WithExecutor(const Use& use) {
  const std::lock_guard<std::mutex> lock(mutex());
  if (entry_->ends.has_value()) use(entry_->ends->executor);
}

}  // namespace espalier
