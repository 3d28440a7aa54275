#include "examples/cli/output/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "base/status.h"
#include "base/wording.h"

namespace espalier::cli {
namespace {

// A line that is longer goes on in the next one, and is not erased.
size_t MaxLength() {
  winsize size = {};
  const bool is_known =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return is_known ? size.ws_col - 1 : std::string::npos;
}

}  // namespace

Progress::Progress(int total)
    : enabled_(isatty(STDERR_FILENO) == 1), total_(total) {}

void Progress::Erase() {
  if (std::exchange(is_shown_, false)) std::fputs("\r\033[K", stderr);
}

void Progress::Begin(std::string what, int total) {
  what_ = std::move(what) + ": ";
  total_ = total;
  num_done_ = 0;
  since_start_.Lap();
  if (enabled_) Show();
}

void Progress::Step() {
  ++num_done_;
  if (!enabled_ || since_print_.Elapsed() < absl::Milliseconds(100)) return;
  Show();
}

void Progress::Tick() {
  if (!enabled_ || since_print_.Elapsed() < absl::Seconds(1)) return;
  Show(Concat(", ", absl::ToInt64Seconds(since_start_.Elapsed()), " s"));
}

std::string Progress::TimeLeft() const {
  const absl::Duration passed = since_start_.Elapsed();
  if (what_.empty() || num_done_ == 0 || num_done_ >= total_ ||
      passed < absl::Seconds(1)) {
    return "";
  }
  const double seconds =
      absl::ToDoubleSeconds(passed) * (total_ - num_done_) / num_done_;
  if (seconds < 100) return Concat(std::lround(seconds), " s left of this");
  return Concat(std::lround(seconds / 60), " min left of this");
}

void Progress::Show(const std::string& more) {
  since_print_.Lap();
  const std::string done =
      total_ > 0 ? Concat(num_done_, "/", Pluralize(total_, "request"))
                 : Pluralize(num_done_, "request");
  is_shown_ = true;
  const bool has_requests = total_ > 0 || num_done_ > 0 || what_.empty();
  const double seconds = absl::ToDoubleSeconds(since_start_.Elapsed());
  const double rate = seconds > 0 ? num_done_ / seconds : 0;
  const std::string left = TimeLeft();
  const std::string line =
      has_requests
          ? Concat(what_, done, ", ",
                   left.empty() ? Concat(std::llround(rate), "/s") : left, more)
          : Concat(what_, "...");
  std::fprintf(stderr, "\r\033[K%s", line.substr(0, MaxLength()).c_str());
}

}  // namespace espalier::cli
