#include "examples/cli/progress.h"

#include <unistd.h>

#include <cstdio>

namespace espalier::cli {

Progress::Progress(int total)
    : enabled_(isatty(STDERR_FILENO) == 1), total_(total) {}

void Progress::End() {
  if (enabled_) std::fputs("\r\033[K", stderr);
}

void Progress::Step() {
  ++num_done_;
  if (!enabled_ || since_print_.Elapsed() < absl::Milliseconds(100)) return;
  since_print_.Lap();
  const std::string of = total_ > 0 ? "/" + std::to_string(total_) : "";
  std::fprintf(stderr, "\r\033[K%d%s requests, %.0f/s", num_done_, of.c_str(),
               num_done_ / absl::ToDoubleSeconds(since_start_.Elapsed()));
}

}  // namespace espalier::cli
