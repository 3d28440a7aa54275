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

// A longer line would wrap, and its first part would not be erased.
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

void Progress::Step() {
  ++num_done_;
  if (!enabled_ || since_print_.Elapsed() < absl::Milliseconds(100)) return;
  Show();
}

void Progress::Tick() {
  if (!enabled_ || since_print_.Elapsed() < absl::Seconds(1)) return;
  Show(Concat(", ", absl::ToInt64Seconds(since_start_.Elapsed()), " s"));
}

void Progress::Show(const std::string& more) {
  since_print_.Lap();
  const std::string done =
      total_ > 0 ? Concat(num_done_, "/", Pluralize(total_, "request"))
                 : Pluralize(num_done_, "request");
  is_shown_ = true;
  const double seconds = absl::ToDoubleSeconds(since_start_.Elapsed());
  const double rate = seconds > 0 ? num_done_ / seconds : 0;
  const std::string line = Concat(done, ", ", std::llround(rate), "/s", more);
  std::fprintf(stderr, "\r\033[K%s", line.substr(0, MaxLength()).c_str());
}

}  // namespace espalier::cli
