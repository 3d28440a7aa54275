// HangingIndent: indents the lines of a text that follow its first:
//     -0.1529  A paragraph.
//
//              Another one.
// Empty lines stay empty.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace espalier::cli {

class HangingIndent {
 public:
  explicit HangingIndent(size_t width) : width_(width) {}

  // Returns the next piece of the text, its lines indented.
  std::string Add(std::string_view piece) {
    std::string indented;
    for (const char c : piece) {
      if (begins_line_ && c != '\n') indented.append(width_, ' ');
      begins_line_ = c == '\n';
      indented += c;
    }
    return indented;
  }

 private:
  const size_t width_;
  bool begins_line_ = false;  // the next byte begins a line
};

}  // namespace espalier::cli
