// ContextLink: a hold on an executor whose context may end first.
//
// asio requires that a context lives while another thread posts to it. An
// engine cannot test that: its context, and those of the coroutines that wait
// for it, end when their owners like, while other threads are about to answer.
// So all posts from outside go through a link. The context's end closes its
// links: it waits for the posts in progress, and later posts do not reach it.
//
// This is for engines and what belongs to them. Of a context that several
// threads still run, asio itself allows no end.
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

  // `on_end` is called by the thread that destroys the context, before anything
  // of it is gone, unless the link is gone first. It may destroy the link.
  // REQUIRES: the context is there.
  ContextLink(const Executor& executor, std::function<void()> on_end);
  ~ContextLink();
  ContextLink(const ContextLink&) = delete;
  ContextLink& operator=(const ContextLink&) = delete;

  // Posts to the executor. After the context's end it destroys `work` and
  // returns false. What asio throws for want of memory leaves `work` unused.
  template <typename Work>
  bool Post(Work work);

  // Calls use(executor), unless the context has ended.
  template <typename Use>
  void WithExecutor(const Use& use);

  // The context's run() does not return between these, as if work was posted.
  void Hold();
  void Release();

 private:
  friend class ContextGate;

  // What must not outlive the context, in its gate's hands.
  struct Ends {
    Executor executor;
    std::optional<Executor> held;
  };
  struct Entry {
    std::optional<Ends> ends;  // until the context does
    std::function<void()> on_end;
  };

  std::mutex& mutex() const;  // of all entries of the context

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
