#include "text/regex/regex_reader.h"

#include <algorithm>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

// Characters of a class, without its brackets. PCRE2 counts U+180E as \s.
constexpr char kSpaces[] =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029})"
    R"(\x{202f}\x{205f}\x{3000})";
constexpr char kNoSpaces[] =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f})"
    R"(\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e})"
    R"(\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr char kHexDigits[] = "0-9a-fA-F";

constexpr std::string_view kCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N", "Nd",
    "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm",
    "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co"};
constexpr std::string_view kScripts[] = {
    "Arabic",   "Armenian", "Bengali",  "Cyrillic", "Devanagari", "Ethiopic",
    "Georgian", "Greek",    "Gujarati", "Han",      "Hangul",     "Hebrew",
    "Hiragana", "Katakana", "Khmer",    "Lao",      "Latin",      "Myanmar",
    "Tamil",    "Telugu",   "Thai",     "Tibetan"};

bool IsOneOf(std::string_view name, const auto& names) {
  return std::ranges::find(names, name) != std::end(names);
}

bool IsLetterOrDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

}  // namespace

absl::Status OnigurumaReader::Unsupported(std::string_view what) const {
  return InvalidArgument("pattern ", ShownInQuotes(pattern_), ", byte ", at_,
                         ": ", what, " is not supported");
}

bool OnigurumaReader::Take(std::string_view text) {
  if (!pattern_.substr(at_).starts_with(text)) return false;
  at_ += text.size();
  return true;
}

absl::StatusOr<std::string> OnigurumaReader::TakeClassEscape(
    std::string_view word_characters, bool* is_negated) {
  const std::string_view rest = pattern_.substr(at_);
  *is_negated = false;
  if (rest.starts_with("\\p") || rest.starts_with("\\P")) {
    return TakeProperty();
  }
  if (rest.size() < 2) return std::string();
  const char lower = static_cast<char>(rest[1] | 0x20);
  std::string characters;
  if (lower == 's') characters = rest[1] == 's' ? kSpaces : kNoSpaces;
  if (lower == 'd') characters = rest[1] == 'd' ? "\\p{Nd}" : "\\P{Nd}";
  if (lower == 'w') characters = word_characters;
  if (lower == 'h') characters = kHexDigits;
  *is_negated = rest[1] == 'W' || rest[1] == 'H';
  if (!characters.empty()) at_ += 2;
  return characters;
}

absl::StatusOr<std::string> OnigurumaReader::TakeProperty() {
  const bool is_upper = pattern_[at_ + 1] == 'P';
  const size_t end = pattern_.find('}', at_);
  if (!pattern_.substr(at_ + 2).starts_with("{") ||
      end == std::string_view::npos) {
    return Unsupported("\\p without {");
  }
  std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
  const bool is_negated = name.starts_with("^") != is_upper;
  if (name.starts_with("^")) name.remove_prefix(1);
  const std::string_view p = is_negated ? "\\P{" : "\\p{";
  const bool is_script = IsOneOf(name, kScripts);
  if (!is_script && !IsOneOf(name, kCategories)) {
    return Unsupported(Concat("the property ", ShownInQuotes(name)));
  }
  at_ = end + 1;
  return Concat(p, is_script ? "sc:" : "", name, "}");
}

absl::StatusOr<std::string> OnigurumaReader::TakeCharacterEscape() {
  if (at_ + 1 == pattern_.size()) return Unsupported("\\ at the end");
  const char c = pattern_[at_ + 1];
  if (c == 'x' || c == 'u') return TakeHexEscape();
  constexpr std::string_view kNames = "ntrfvae";
  constexpr std::string_view kCodes[] = {"0a", "09", "0d", "0c",
                                         "0b", "07", "1b"};
  const size_t idx = kNames.find(c);
  if (idx != std::string_view::npos) {
    at_ += 2;
    return Concat("\\x", kCodes[idx]);
  }
  if (static_cast<unsigned char>(c) >= 0x80) {
    // A byte of several alone is no text.
    return Unsupported("\\ before a character that is not ASCII");
  }
  if (IsLetterOrDigit(c)) return Unsupported(Concat("the escape \\", c));
  at_ += 2;
  return Concat("\\", c);
}

absl::StatusOr<std::string> OnigurumaReader::TakeHexEscape() {
  const std::string_view rest = pattern_.substr(at_ + 2);
  const auto num_digits = [](std::string_view text) {
    return std::min(text.find_first_not_of("0123456789abcdefABCDEF"),
                    text.size());
  };
  if (pattern_[at_ + 1] == 'x' && rest.starts_with("{")) {
    const size_t num = num_digits(rest.substr(1));
    if (num == 0 || num > 6 || !rest.substr(1 + num).starts_with("}")) {
      return Unsupported("this \\x{");
    }
    at_ += num + 4;
    return Concat("\\x{", rest.substr(1, num), "}");
  }
  const size_t num = pattern_[at_ + 1] == 'x' ? 2 : 4;
  if (num_digits(rest) < num) return Unsupported("so short a code");
  // \xE2 is a byte of UTF-8 there, a character of Latin-1 here.
  if (num == 2 && rest[0] > '7') return Unsupported("a byte above \\x7f");
  at_ += 2 + num;
  return Concat("\\x{", rest.substr(0, num), "}");
}

}  // namespace espalier
