// Mailbox: work that runs one after the other on a context, in the order it was
// posted: a strand that outlives its context, and needs no memory that it
// cannot wait for.
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

  // `on_end` is called when the context ends, instead of any work: by the
  // thread that destroys it, while nothing runs.
  static std::shared_ptr<Mailbox> Create(
      const boost::asio::any_io_executor& executor,
      std::function<void()> on_end);

  // `work` must not throw. After the context's end it is destroyed instead.
  template <typename F>
  void Post(F work) noexcept;
  // The same, but throws std::bad_alloc, and has done nothing then.
  template <typename F>
  void PostOrThrow(F work);

  // A timer of the context, which calls `on_time` there, not as work of this.
  // Null after the context's end. Throws std::bad_alloc, and
  // boost::system::system_error where the system has none.
  std::unique_ptr<WakeTimer> MakeTimer(std::function<void()> on_time);

  // The context's run() does not return between these.
  void HoldContext() { link_->Hold(); }
  void ReleaseContext() { link_->Release(); }

 private:
  explicit Mailbox(std::function<void()> on_end);

  // Takes the one element of `work`.
  void Enqueue(std::list<Work> work) noexcept;
  void Schedule();
  void Run();
  void OnContextEnd();

  // Constant after Create.
  std::function<void()> on_end_;
  std::unique_ptr<ContextLink> link_;

  std::mutex mutex_;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_scheduled_ ABSL_GUARDED_BY(mutex_) = false;  // or runs
  std::list<Work> posted_ ABSL_GUARDED_BY(mutex_);
};

template <typename F>
void Mailbox::Post(F work) noexcept {
  // Who waits for memory holds no lock: what runs may be what gives some back.
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
