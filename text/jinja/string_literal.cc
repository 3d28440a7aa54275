#include "text/jinja/string_literal.h"

#include <cstdint>

#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Returns the byte that a backslash and `c` stand for, if it is a single one.
std::optional<char> SimpleEscape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
      return '\\';
    case '\'':
      return '\'';
    case '"':
      return '"';
    default:
      return std::nullopt;
  }
}

// Returns the number of hexadecimal digits after \x, \u and \U; 0 for others.
size_t NumHexDigits(char c) {
  return c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
}

class EscapeReader {
 public:
  explicit EscapeReader(std::string_view literal) : rest_(literal) {}

  std::optional<std::string> Read() {
    while (!rest_.empty()) {
      const size_t plain = std::min(rest_.find('\\'), rest_.size());
      text_ += rest_.substr(0, plain);
      rest_.remove_prefix(plain);
      if (!rest_.empty() && !ReadEscape()) return std::nullopt;
    }
    return std::move(text_);
  }

 private:
  bool ReadEscape() {
    if (rest_.size() < 2) return false;
    const char c = rest_[1];
    rest_.remove_prefix(2);
    if (c == '\n') return true;  // a line continuation
    if (const std::optional<char> byte = SimpleEscape(c)) {
      text_ += *byte;
      return true;
    }
    if (const size_t num_digits = NumHexDigits(c)) return ReadHex(num_digits);
    if (c >= '0' && c <= '7') return ReadOctal(c);
    if (c == 'N') return false;  // by name
    text_ += '\\';
    text_ += c;
    return true;
  }

  bool ReadHex(size_t num_digits) {
    if (rest_.size() < num_digits) return false;
    uint64_t code_point = 0;
    for (size_t i = 0; i < num_digits; ++i) {
      const int digit = HexDigit(rest_[i]);
      if (digit < 0) return false;
      code_point = code_point * 16 + digit;
    }
    rest_.remove_prefix(num_digits);
    const bool is_surrogate = code_point >= 0xD800 && code_point < 0xE000;
    if (code_point > 0x10FFFF || is_surrogate) return false;
    AppendCodePoint(static_cast<uint32_t>(code_point), &text_);
    return true;
  }

  bool ReadOctal(char first) {
    uint32_t code_point = first - '0';
    for (int i = 0; i < 2 && !rest_.empty(); ++i) {
      if (rest_[0] < '0' || rest_[0] > '7') break;
      code_point = code_point * 8 + (rest_[0] - '0');
      rest_.remove_prefix(1);
    }
    AppendCodePoint(code_point, &text_);
    return true;
  }

  std::string_view rest_;
  std::string text_;
};

}  // namespace

std::optional<std::string> ReadStringLiteral(std::string_view literal) {
  return EscapeReader(literal).Read();
}

}  // namespace espalier::jinja
