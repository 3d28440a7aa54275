// Progress: one line on stderr that overwrites itself, only when stderr is a
// terminal, and at most ten times a second.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/stopwatch.h"

namespace espalier::cli {

class Progress {
 public:
  // `total` 0 is unknown.
  explicit Progress(int total);
  ~Progress() { End(); }

  void SetTotal(int total) { total_ = total; }
  // Counts one more request as done.
  void Step();
  // Erases the line.
  void End();

 private:
  const bool enabled_;
  int total_;
  int num_done_ = 0;
  Stopwatch since_start_;
  Stopwatch since_print_;
};

}  // namespace espalier::cli
