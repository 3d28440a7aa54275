#include "examples/cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/status.h"
#include "base/wording.h"

namespace espalier::cli {

Progress::Progress(int total)
    : enabled_(isatty(STDERR_FILENO) == 1), total_(total) {}

void Progress::Erase() {
  if (std::exchange(is_shown_, false)) std::fputs("\r\033[K", stderr);
}

void Progress::Step() {
  ++num_done_;
  if (!enabled_ || since_print_.Elapsed() < absl::Milliseconds(100)) return;
  since_print_.Lap();
  const std::string done =
      total_ > 0 ? Concat(num_done_, "/", Pluralize(total_, "request"))
                 : Pluralize(num_done_, "request");
  is_shown_ = true;
  std::fprintf(stderr, "\r\033[K%s, %.0f/s", done.c_str(),
               num_done_ / absl::ToDoubleSeconds(since_start_.Elapsed()));
}

}  // namespace espalier::cli
