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
  const std::lock_guard<std::mutex> lock(mutex_);
  std::set<int64_t> numbers;
  for (const std::string& id : ids) {
    const auto [begin, end] = numbers_.equal_range(id);
    for (auto it = begin; it != end; ++it) numbers.insert(it->second);
  }
  for (const int64_t number : numbers) calls_.at(number)();
  return static_cast<int>(numbers.size());
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
