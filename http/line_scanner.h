// LineScanner: finds the end of a block of header lines, the empty line, as
// bytes arrive in pieces of any size, and refuses at the first byte what no
// such block contains: control characters, CR or LF alone, folded lines.
#pragma once

#include <cstddef>
#include <string_view>

namespace espalier::http {

class LineScanner {
 public:
  enum class State { kMore, kEnd, kBad };

  // If it follows the end of a line, as trailers do, an empty line is the end
  // at once. Elsewhere it is the end after a line that is not empty.
  explicit LineScanner(bool follows_line) : matched_(follows_line ? 2 : 0) {}

  // Returns how many of `bytes` it has taken: all while the state is kMore.
  size_t Scan(std::string_view bytes);

  State state() const { return state_; }

 private:
  void Take(unsigned char byte);

  State state_ = State::kMore;
  int matched_;  // matched bytes of CR LF CR LF
};

}  // namespace espalier::http
