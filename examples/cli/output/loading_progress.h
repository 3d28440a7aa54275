// LoadingProgress: how far the loading of a model is, in one line on stderr
// that overwrites itself, only when stderr is a terminal, and only of a model
// that takes longer than a moment:
//   loading the model: 3.2 of 16.1 GB, 1.9 GB/s
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/stopwatch.h"

namespace espalier::cli {

// The line, `elapsed` after the beginning.
std::string FormatLoading(int64_t done_bytes, int64_t total_bytes,
                          absl::Duration elapsed);

class LoadingProgress {
 public:
  LoadingProgress();
  ~LoadingProgress();

  void Update(int64_t done_bytes, int64_t total_bytes);

 private:
  const bool enabled_;
  bool is_shown_ = false;
  Stopwatch since_start_;
  Stopwatch since_print_;
};

}  // namespace espalier::cli
