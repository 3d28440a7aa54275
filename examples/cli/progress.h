// Progress: one line on stderr that overwrites itself, only when stderr is a
// terminal, and at most ten times a second:
//   142/3000 requests, 68/s
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/stopwatch.h"

namespace espalier::cli {

class Progress {
 public:
  // `total` 0 is unknown.
  explicit Progress(int total);
  ~Progress() { Erase(); }

  void SetTotal(int total) { total_ = total; }
  // Counts one more request as done.
  void Step();
  // Erases the line, until the next step.
  void Erase();

 private:
  const bool enabled_;
  bool is_shown_ = false;
  int total_;
  int num_done_ = 0;
  Stopwatch since_start_;
  Stopwatch since_print_;
};

}  // namespace espalier::cli
