#include "batcher/list_maker.h"

#include <new>
#include <system_error>
#include <utility>

#include "base/memory.h"

namespace espalier {

ListMaker::ListMaker(OnListed on_listed) : on_listed_(std::move(on_listed)) {}

ListMaker::~ListMaker() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool ListMaker::Make(ListWork work) try {
  std::list<ListWork> one;
  one.push_back(std::move(work));
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  {
    const std::lock_guard lock(mutex_);
    queue_.splice(queue_.end(), one);
  }
  wake_.notify_one();
  return true;
} catch (const std::bad_alloc&) {
  return false;
} catch (const std::system_error&) {
  return false;
}

void ListMaker::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (queue_.empty() && !stops_) wake_.wait(lock);
    if (stops_) return;
    std::list<ListWork> one;
    one.splice(one.end(), queue_, queue_.begin());
    lock.unlock();
    ListWork& work = one.front();
    if (!work.is_awaited.expired() && !work.places.empty()) {
      const ConstraintPlace place = work.places.back();
      work.places.pop_back();
      // Without memory the strand makes it, and reports that there is none.
      IfThereIsMemory(
          [&] { work.constraint->LegalTokens(place.state, place.room); });
    }
    if (work.is_awaited.expired() || work.places.empty()) {
      const RequestId request = work.request;
      const std::weak_ptr<const void> is_awaited = work.is_awaited;
      one.clear();  // may hold the last reference to the constraint
      on_listed_(request, is_awaited);
    }
    lock.lock();
    queue_.splice(queue_.end(), one);
  }
}

}  // namespace espalier
