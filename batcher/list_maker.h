// ListMaker: a thread that makes lists of legal tokens which take long
// (ListWork), so that the strand of an engine, which all requests share, does
// not. Groups take turns, a list at a time.
//
//   ListMaker maker([](RequestId request, const auto& is_awaited) { ... });
//   if (!maker.Make(std::move(work))) ...  // no thread: make them elsewhere
//
// The thread starts with the first work. Work that its group no longer waits
// for is dropped, but is reported as well.
//
// Thread safety: one caller at a time. The destructor waits for the list that
// is being made, and drops all others, without a report.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "base/ids.h"
#include "beam/sequence_group.h"

namespace espalier {

class ListMaker {
 public:
  using OnListed =
      std::function<void(RequestId, const std::weak_ptr<const void>&)>;
  //   on_listed  called on the thread, once for each work, with its request and
  //              is_awaited; also if memory runs out for its lists. Must not
  //              throw
  explicit ListMaker(OnListed on_listed);
  ~ListMaker();
  ListMaker(const ListMaker&) = delete;
  ListMaker& operator=(const ListMaker&) = delete;

  // Returns false if the system has no thread or no memory for it; then the
  // work is not done and is not reported.
  bool Make(ListWork work);

 private:
  void Run();

  const OnListed on_listed_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<ListWork> queue_ ABSL_GUARDED_BY(mutex_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // after what it uses
};

}  // namespace espalier
