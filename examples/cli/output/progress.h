// Progress: one line on stderr that overwrites itself, only when stderr is a
// terminal, cut to that one's width, and at most ten times a second:
//   142/3000 requests, 68/s
//   timing, run 2 of 6: 142/3000 requests, 68/s
//   0/1 request, 0/s, 12 s
//   timing, run 2 of 6: 142/3000 requests, 40 s left
#pragma once

#include <cstdint>
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
  // Sets the total work of all parts, which Step counts down. From then on the
  // line shows the remaining time, extrapolated from the finished work.
  void Expect(int64_t work);
  // Begins anew, with a part of the work that is called `what`, and shows it.
  void Begin(std::string what, int total);
  // Counts one more request as done, and so much of the work that is expected.
  void Step(int64_t work = 0);
  // Shows it with the time that has passed, if it has not been shown for a
  // second.
  void Tick();
  // Erases the line, until the next step.
  void Erase();

 private:
  void Show(const std::string& more = "");
  // Returns "40 s left", or "" if too little is done to extrapolate.
  std::string TimeLeft() const;

  const bool enabled_;
  std::string what_;  // or ""
  bool is_shown_ = false;
  int total_;
  int num_done_ = 0;
  int64_t work_ = 0;  // total of all parts; 0: not known
  int64_t work_done_ = 0;
  Stopwatch since_expected_;
  Stopwatch since_start_;
  Stopwatch since_print_;
};

}  // namespace espalier::cli
