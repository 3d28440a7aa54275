// ContextLink: a handle to an executor whose context may end first.
//
// asio requires that a context lives while another thread posts to it. An
// engine cannot test that: the owners of its context, and of the contexts of
// waiting coroutines, may end them while other threads are about to answer. So
// all posts from outside use a link. The end of the context closes its links:
// it waits for the posts in progress, and later posts do not reach it.
//
// For engines and their parts only. A link does not make it safe to end a
// context that other threads still run: asio forbids that.
//
//   ContextLink link(executor, [] { ... });  // called when the context ends
//   if (!link.Post([] { ... })) ...          // the context had ended
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
  // was destroyed earlier. A link that another thread destroys during the
  // context's end may still get the call. `on_end` may destroy the link.
  // REQUIRES: the context exists.
  ContextLink(const Executor& executor, std::function<void()> on_end);
  ~ContextLink();
  ContextLink(const ContextLink&) = delete;
  ContextLink& operator=(const ContextLink&) = delete;

  // Posts `work` to the executor and returns true. After the context's end,
  // destroys `work` and returns false. Throws std::bad_alloc if memory runs
  // out; `work` is then destroyed without a call.
  template <typename Work>
  bool Post(Work work);

  // Calls use(executor) unless the context has ended.
  // REQUIRES: `use` uses no link of this context, because a lock is held.
  template <typename Use>
  void WithExecutor(const Use& use);

  // Between Hold and Release the context's run() does not return, as if work
  // were posted. Holds do not nest: one Release ends them all.
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
