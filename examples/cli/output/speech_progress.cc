#include "examples/cli/output/speech_progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "examples/cli/output/output.h"

namespace espalier::cli {
namespace {

// "58:12" or "1:00:00".
std::string ClockTime(double seconds) {
  const auto all = static_cast<int64_t>(seconds);
  char text[48];
  if (all >= 3600) {
    std::snprintf(text, sizeof(text), "%lld:%02d:%02d",
                  static_cast<long long>(all / 3600),
                  static_cast<int>(all / 60 % 60), static_cast<int>(all % 60));
  } else {
    std::snprintf(text, sizeof(text), "%d:%02d", static_cast<int>(all / 60),
                  static_cast<int>(all % 60));
  }
  return text;
}

}  // namespace

std::string FormatSpeechProgress(const std::string& name, double done,
                                 double duration, absl::Duration elapsed) {
  std::string line =
      name + ": " + ClockTime(done) + " of " + ClockTime(duration);
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (done <= 0 || seconds <= 0) return line;
  const double rate = done / seconds;
  char text[48];
  std::snprintf(text, sizeof(text), ", %.*fx real time, ", rate < 10 ? 1 : 0,
                rate);
  return line + text + ClockTime((duration - done) / rate) + " left";
}

SpeechProgress::SpeechProgress(std::string name)
    : name_(std::move(name)), enabled_(isatty(STDERR_FILENO) == 1) {}

void SpeechProgress::Show(double done, double duration) {
  if (!enabled_) return;
  is_shown_ = true;
  const std::string line = ForTerminal(
      FormatSpeechProgress(name_, done, duration, since_start_.Elapsed()));
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
}

void SpeechProgress::Erase() {
  if (std::exchange(is_shown_, false)) std::fputs("\r\033[K", stderr);
}

}  // namespace espalier::cli
