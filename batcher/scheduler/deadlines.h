// Deadlines: the requests with a deadline, earliest first. A request owns its
// entry, while it waits and runs, and the entry removes itself with the
// request, so no entries remain for ended requests.
//
//   waiting.deadline = deadlines.Add(now + std::chrono::milliseconds(50), id);
//   ...
//   while (const auto id = deadlines.FirstExpired(now)) ...  // ends it
//
// Adding is O(log n) for n deadlines, the rest O(1).
//
// Belongs to its scheduler's strand. It has no clock: the scheduler's caller
// passes the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/ids.h"

namespace espalier {

// Returns the error of a request whose `deadline_ms` has passed while it waited
// for something: "the request waited for a place".
absl::Status PassedDeadline(int64_t deadline_ms, std::string_view waited_for);

class Deadlines {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Deadlines() = default;
  ~Deadlines();
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

 private:
  using Times = std::set<std::pair<Time, RequestId>>;

 public:
  // The deadline of one request, or empty.
  class Entry {
   public:
    Entry() = default;
    Entry(Entry&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), at_(other.at_) {}
    Entry& operator=(Entry&& other) noexcept {
      if (this == &other) return *this;
      Remove();
      owner_ = std::exchange(other.owner_, nullptr);
      at_ = other.at_;
      return *this;
    }
    ~Entry() { Remove(); }

    void Remove() {
      if (owner_ != nullptr) std::exchange(owner_, nullptr)->times_.erase(at_);
    }

   private:
    friend class Deadlines;
    Entry(Deadlines* owner, Times::iterator at) : owner_(owner), at_(at) {}

    Deadlines* owner_ = nullptr;  // null: empty
    Times::iterator at_ = {};
  };

  // Throws std::bad_alloc. The entry must not outlive this.
  // REQUIRES: the request has no other deadline.
  Entry Add(Time when, RequestId id);

  int size() const { return static_cast<int>(times_.size()); }
  // Returns the earliest deadline.
  std::optional<Time> first() const;
  // Returns the request with the earliest deadline, if it has passed. The entry
  // remains until it is removed.
  std::optional<RequestId> FirstExpired(Time now) const;

 private:
  Times times_;
};

}  // namespace espalier
