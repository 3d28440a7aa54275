#include "examples/cli/output/loading_progress.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_format.h"

namespace espalier::cli {
namespace {

// So many times a second is enough.
constexpr absl::Duration kPeriod = absl::Milliseconds(100);

}  // namespace

std::string FormatLoading(int64_t done_bytes, int64_t total_bytes,
                          absl::Duration elapsed) {
  const double done = 1e-9 * static_cast<double>(done_bytes);
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return absl::StrFormat("loading the model: %.1f of %.1f GB, %.1f GB/s", done,
                         1e-9 * static_cast<double>(total_bytes),
                         seconds > 0 ? done / seconds : 0);
}

LoadingProgress::LoadingProgress() : enabled_(isatty(STDERR_FILENO) == 1) {}

LoadingProgress::~LoadingProgress() {
  if (is_shown_) std::fputs("\r\033[K", stderr);
}

void LoadingProgress::Update(int64_t done_bytes, int64_t total_bytes) {
  if (!enabled_ || since_print_.Elapsed() < kPeriod) return;
  since_print_.Lap();
  is_shown_ = true;
  std::fprintf(
      stderr, "\r\033[K%s",
      FormatLoading(done_bytes, total_bytes, since_start_.Elapsed()).c_str());
}

}  // namespace espalier::cli
