#include "serve/running_calls.h"

#include <set>
#include <utility>

namespace espalier::serve {

RunningCalls::Entry RunningCalls::Add(std::vector<std::string> ids,
                                      std::function<void()> abort) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t number = next_number_++;
  calls_.emplace(number, std::move(abort));
  for (const std::string& id : ids) numbers_.emplace(id, number);
  return Entry(this, number, std::move(ids));
}

int RunningCalls::Abort(std::span<const std::string> ids) {
  // Other calls wait for one id at a time, of which there may be a million.
  std::set<int64_t> aborted;
  for (const std::string& id : ids) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [begin, end] = numbers_.equal_range(id);
    for (auto it = begin; it != end; ++it) {
      if (aborted.insert(it->second).second) calls_.at(it->second)();
    }
  }
  return static_cast<int>(aborted.size());
}

void RunningCalls::Remove(int64_t number, const std::vector<std::string>& ids) {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.erase(number);
  for (const std::string& id : ids) {
    const auto [begin, end] = numbers_.equal_range(id);
    for (auto it = begin; it != end; ++it) {
      if (it->second != number) continue;
      numbers_.erase(it);
      break;
    }
  }
}

}  // namespace espalier::serve
