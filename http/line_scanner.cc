#include "http/line_scanner.h"

namespace espalier::http {

size_t LineScanner::Scan(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && state_ == State::kMore) {
    Take(static_cast<unsigned char>(bytes[taken++]));
  }
  return taken;
}

void LineScanner::Take(unsigned char byte) {
  const bool expects_lf = matched_ == 1 || matched_ == 3;
  if (byte == '\n' || expects_lf) {
    if (byte != '\n' || !expects_lf) {
      state_ = State::kBad;
    } else if (++matched_ == 4) {
      state_ = State::kEnd;
    }
    return;
  }
  if (byte == '\r') {
    ++matched_;
    return;
  }
  const bool folds = matched_ == 2 && (byte == ' ' || byte == '\t');
  const bool is_control = (byte < 0x20 && byte != '\t') || byte == 0x7f;
  matched_ = 0;
  if (folds || is_control) state_ = State::kBad;
}

}  // namespace espalier::http
