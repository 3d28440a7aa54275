// RunningCalls: the calls that are being answered, by their ids, so that
// clients can end them: POST /abort_requests.
//
//   const RunningCalls::Entry entry = running.Add({"cmpl-7", "7"}, abort);
//   ...
//   running.Abort(ids);  // calls abort(), from any thread
//
// Thread safety: any thread calls anything.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"

namespace espalier::serve {

class RunningCalls {
 public:
  // A call, as long as this lives.
  class Entry {
   public:
    ~Entry() { calls_->Remove(number_, ids_); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    friend class RunningCalls;
    Entry(RunningCalls* calls, int64_t number, std::vector<std::string> ids)
        : calls_(calls), number_(number), ids_(std::move(ids)) {}

    RunningCalls* const calls_;
    const int64_t number_;
    const std::vector<std::string> ids_;
  };

  // `abort` blocks no caller, and is not called after the end of the entry.
  // Several calls may have one id.
  Entry Add(std::vector<std::string> ids, std::function<void()> abort);

  // Aborts the calls that have one of `ids`. Returns how many.
  int Abort(std::span<const std::string> ids);

 private:
  void Remove(int64_t number, const std::vector<std::string>& ids);

  std::mutex mutex_;
  int64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, std::function<void()>> calls_ ABSL_GUARDED_BY(mutex_);
  std::multimap<std::string, int64_t> numbers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier::serve
