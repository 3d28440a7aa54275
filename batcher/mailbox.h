// Mailbox: runs work items one after the other on a context, in the order of
// posting. Unlike an asio strand it may outlive its context, and it can wait
// for memory.
//
// Thread safety: any thread posts, at any time.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "base/memory.h"
#include "batcher/context_link.h"
#include "batcher/wake_timer.h"

namespace espalier {

class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  using Work = absl::AnyInvocable<void()>;

  // `on_end` is called when the context ends, in place of any work, by the
  // thread that destroys it, while nothing runs.
  static std::shared_ptr<Mailbox> Create(
      const boost::asio::any_io_executor& executor,
      std::function<void()> on_end);

  // `work` must not throw. It is destroyed if the context has ended.
  template <typename F>
  void Post(F work) noexcept;
  // As Post, but throws std::bad_alloc, having posted nothing.
  template <typename F>
  void PostOrThrow(F work);

  // Returns a timer of the context, which calls `on_time` there, outside the
  // mailbox. Null after the context's end. Throws std::bad_alloc, and
  // boost::system::system_error if the system has no descriptors.
  std::unique_ptr<WakeTimer> MakeTimer(std::function<void()> on_time);

  // Between these the context's run() does not return.
  void HoldContext() { link_->Hold(); }
  void ReleaseContext() { link_->Release(); }

 private:
  explicit Mailbox(std::function<void()> on_end);

  // Appends the one element of `work`.
  void Enqueue(std::list<Work> work) noexcept;
  void Schedule();
  void Run();
  void OnContextEnd();

  // Constant after Create.
  std::function<void()> on_end_;
  std::unique_ptr<ContextLink> link_;

  std::mutex mutex_;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_scheduled_ ABSL_GUARDED_BY(mutex_) = false;  // or running
  std::list<Work> posted_ ABSL_GUARDED_BY(mutex_);
};

template <typename F>
void Mailbox::Post(F work) noexcept {
  // Waits for memory without a lock, because running work may free some.
  std::list<Work> one;
  UntilThereIsMemory([&] { one.emplace_back(std::move(work)); });
  Enqueue(std::move(one));
}

template <typename F>
void Mailbox::PostOrThrow(F work) {
  std::list<Work> one;
  one.emplace_back(std::move(work));
  Enqueue(std::move(one));
}

}  // namespace espalier
