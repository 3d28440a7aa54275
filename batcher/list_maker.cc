#include "batcher/list_maker.h"

#include <new>
#include <system_error>
#include <utility>

#include "base/memory.h"

namespace espalier {

ListMaker::ListMaker(std::function<void(RequestId)> on_listed)
    : on_listed_(std::move(on_listed)) {}

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
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
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
    ListWork work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (!work.is_awaited.expired() && !work.places.empty()) {
      const ConstraintPlace place = work.places.back();
      work.places.pop_back();
      // Without memory the strand makes it, and reports that there is none.
      IfThereIsMemory(
          [&] { work.constraint->LegalTokens(place.state, place.room); });
    }
    const bool is_done = work.is_awaited.expired() || work.places.empty();
    if (is_done) {
      const RequestId request = work.request;
      work = {};  // may hold the last reference to the constraint
      on_listed_(request);
    }
    lock.lock();
    if (!is_done) {
      UntilThereIsMemory([&] { queue_.push_back(std::move(work)); });
    }
  }
}

}  // namespace espalier
