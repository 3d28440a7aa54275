// Progress: one line on stderr that overwrites itself, only when stderr is a
// terminal, cut to that one's width, and at most ten times a second:
//   142/3000 requests, 68/s
//   0/1 request, 0/s, 12 s
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
  // Shows it with the time that has passed, if it has not been shown for a
  // second.
  void Tick();
  // Erases the line, until the next step.
  void Erase();

 private:
  void Show(const std::string& more = "");

  const bool enabled_;
  bool is_shown_ = false;
  int total_;
  int num_done_ = 0;
  Stopwatch since_start_;
  Stopwatch since_print_;
};

}  // namespace espalier::cli
