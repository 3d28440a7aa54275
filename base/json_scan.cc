#include "base/json_scan.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/field_error.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr std::string_view kSyntaxError = "syntax error";
// Within a string, whose bytes are no syntax of another language's.
constexpr std::string_view kWrongEscape = "wrong escape in a string";
constexpr std::string_view kControl =
    "control character in a string, where it is escaped";
constexpr std::string_view kIncomplete = "incomplete JSON";
constexpr std::string_view kUnpaired = "unpaired surrogate";
// Errors for valid JSON beyond our limits.
constexpr std::string_view kTooDeep = "lists and objects nest 32 deep at most";
constexpr std::string_view kLongExponent = "it has 8 digits at most";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordPart(char c) {
  return IsDigit(c) || c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}
// True for a key in quotes that may be the name of a field.
bool IsFieldName(std::string_view key) {
  constexpr size_t kMostBytes = 64;
  return key.size() > 2 && key.size() <= kMostBytes &&
         std::ranges::all_of(key.substr(1, key.size() - 2), IsWordPart);
}
bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// True if eight bytes of a string contain no quote, backslash or control
// character. Each comparison can be wrong only about bytes after a true match,
// so its result for all eight bytes is exact.
bool ArePlain(const char* bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHighs = 0x80 * kOnes;
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  const auto has_less = [](uint64_t w, uint64_t n) {
    return (w - kOnes * n) & ~w & kHighs;
  };
  return (has_less(word, 0x20) | has_less(word ^ (kOnes * '"'), 1) |
          has_less(word ^ (kOnes * '\\'), 1)) == 0;
}

// Reads a value from the front of a text. Members return false after an error.
class Scanner {
 public:
  Scanner(std::string_view text, int max_depth, const OnJsonMember* on_member)
      : begin_(text.data()),
        at_(begin_),
        end_(begin_ + text.size()),
        max_depth_(max_depth),
        on_member_(on_member) {}

  // The whole text is one value.
  bool All(JsonText* value) {
    SkipSpaces();
    if (!Value(value)) return false;
    SkipSpaces();
    return at_ == end_ || Fail("extra data");
  }

  // One value, with what it holds.
  bool Value(JsonText* value) {
    const char* const begin = at_;
    const int64_t num_before = num_values_;
    const int64_t most_before = std::exchange(max_members_, 0);
    if (!AnyValue()) return false;
    *value = {std::string_view(begin, at_ - begin), num_values_ - num_before,
              max_members_};
    ++num_values_;
    max_members_ = std::max(max_members_, most_before);
    return true;
  }

  void SkipSpaces() {
    while (at_ < end_ && IsSpace(*at_)) ++at_;
  }

  absl::Status error() const {
    if (std::all_of(begin_, end_, IsSpace)) {
      return InvalidArgument("not JSON: there is nothing in it");
    }
    if (error_ == kTooDeep && IsFieldName(outer_key_)) {
      return InvalidField(
          FieldName{outer_key_.substr(1, outer_key_.size() - 2)},
          " is nested too deep at byte ", at_ - begin_, ": ", error_);
    }
    const std::string_view kind = error_ == kTooDeep ? "nested too deep"
                                  : error_ == kLongExponent
                                      ? "exponent too long"
                                      : "not JSON";
    return InvalidArgument(kind, " at byte ", at_ - begin_, ": ", error_,
                           error_ == kSyntaxError ? SyntaxHint() : "");
  }

 private:
  bool Fail(std::string_view error) {
    error_ = error;
    return false;
  }
  // Returns a hint if the text uses syntax of other languages that JSON lacks.
  std::string_view SyntaxHint() const {
    const std::string_view rest(at_, end_ - at_);
    const auto begins_with_any = [&](auto... words) {
      return (rest.starts_with(words) || ...);
    };
    if (begins_with_any("'")) return "; strings stand in double quotes";
    const size_t length =
        std::ranges::find_if_not(rest, IsWordPart) - rest.begin();
    if (wants_key_ && length > 0) return "; keys stand in double quotes";
    const std::string_view before(begin_, at_ - begin_);
    const size_t last = before.find_last_not_of(" \n\t\r");
    // No hint for a text that begins with a word: it may not be JSON at all.
    const std::string_view word =
        before.find_first_not_of(" \n\t\r-") == before.npos
            ? ""
            : rest.substr(0, length);
    if (word == "None" || word == "True" || word == "False") {
      return "; it is written null, true or false";
    }
    if (word == "NaN" || word == "nan" || word == "Infinity" || word == "inf") {
      return "; there is no such number";
    }
    if (begins_with_any("//", "/*", "#")) return "; there are no comments";
    const bool follows_comma = last != before.npos && before[last] == ',';
    if (follows_comma && begins_with_any("}", "]")) {
      return "; there is a trailing comma before it";
    }
    return "";
  }
  // Fails at an unexpected byte, or at the end of the text.
  bool Unexpected() { return Fail(at_ < end_ ? kSyntaxError : kIncomplete); }

  bool Is(char c) const { return at_ < end_ && *at_ == c; }
  bool Take(char c) {
    if (!Is(c)) return false;
    ++at_;
    return true;
  }

  bool AnyValue() {
    if (at_ == end_) return Unexpected();
    switch (*at_) {
      case '{':
        return Object();
      case '[':
        return Array();
      case '"':
        return String();
      case 't':
        return Literal("true");
      case 'f':
        return Literal("false");
      case 'n':
        return Literal("null");
      default:
        return Number();
    }
  }

  bool Enter() {
    if (depth_ == kMaxJsonDepth) {
      static_assert(kMaxJsonDepth == 32);
      return Fail(kTooDeep);
    }
    ++depth_;
    ++at_;
    SkipSpaces();
    return true;
  }
  bool Leave() {
    --depth_;
    ++at_;
    return true;
  }

  // Advances to the next item and returns true, if there is one before `close`.
  // Returns false at `close`, without an error.
  bool Continues(char close) {
    SkipSpaces();
    if (Is(close)) return false;
    if (!Take(',')) return Unexpected();
    SkipSpaces();
    return true;
  }

  // Scans nested lists in the same loop, without recursion.
  bool Array() {
    const int outer_depth = depth_;
    if (!Enter()) return false;
    bool at_end = Is(']');  // end of the innermost list
    while (true) {
      if (!at_end) at_end = SkipIntegers();
      if (at_end) {
        Leave();
        if (depth_ == outer_depth) return true;
      } else if (Is('[')) {
        if (!Enter()) return false;
        at_end = Is(']');
        continue;
      } else if (!AnyValue()) {
        return false;
      }
      ++num_values_;
      at_end = !Continues(']');
      if (at_end && !error_.empty()) return false;
    }
  }

  // Skips leading elements that are plain integers, with their commas; a fast
  // path for long lists. True if they end the list; then it is at the bracket.
  bool SkipIntegers() {
    const char* at = at_;
    while (true) {
      const char* const begin = at;
      while (at < end_ && IsDigit(*at)) ++at;
      const bool is_integer = at > begin && (*begin != '0' || at == begin + 1);
      if (!is_integer || at == end_) return false;
      const bool is_last = *at == ']';
      if (!is_last && *at != ',') return false;
      ++num_values_;
      if (is_last) {
        at_ = at;
        return true;
      }
      ++at;
      while (at < end_ && IsSpace(*at)) ++at;
      at_ = at;
    }
  }

  bool Object() {
    if (!Enter()) return false;
    if (Is('}')) return Leave();
    int64_t num_members = 0;
    do {
      if (!Member()) return false;
      ++num_members;
    } while (Continues('}'));
    max_members_ = std::max(max_members_, num_members);
    return error_.empty() && Leave();
  }

  bool Member() {
    const char* const begin = at_;
    wants_key_ = !Is('"');
    if (wants_key_) return Unexpected();
    if (!String()) return false;
    const std::string_view key(begin, at_ - begin);
    SkipSpaces();
    if (!Take(':')) return Unexpected();
    SkipSpaces();
    const std::string_view enclosing = outer_key_;
    if (depth_ <= max_depth_) outer_key_ = key;
    JsonText value;
    if (!Value(&value)) return false;
    outer_key_ = enclosing;
    if (depth_ <= max_depth_) (*on_member_)(depth_, key, value);
    return true;
  }

  bool Literal(std::string_view word) {
    const size_t length = std::min<size_t>(word.size(), end_ - at_);
    if (std::string_view(at_, length) != word.substr(0, length)) {
      return Fail(kSyntaxError);
    }
    at_ += length;
    return length == word.size() || Fail(kIncomplete);
  }

  bool Digits() {
    if (at_ == end_ || !IsDigit(*at_)) return Unexpected();
    while (at_ < end_ && IsDigit(*at_)) ++at_;
    return true;
  }

  bool Number() {
    Take('-');
    if (!Take('0') && !Digits()) return false;
    if (Take('.') && !Digits()) return false;
    if (!Take('e') && !Take('E')) return true;
    if (!Take('+')) Take('-');
    return Exponent();
  }

  // Eight digits always fit an int; longer exponents mean 0 or infinity.
  bool Exponent() {
    const char* begin = at_;
    if (!Digits()) return false;
    while (begin < at_ && *begin == '0') ++begin;
    constexpr int kMostDigits = std::numeric_limits<int>::digits10 - 1;
    return at_ - begin <= kMostDigits || Fail(kLongExponent);
  }

  bool String() {
    ++at_;
    while (true) {
      while (end_ - at_ >= 8 && ArePlain(at_)) at_ += 8;
      if (at_ == end_) return Fail(kIncomplete);
      const auto c = static_cast<unsigned char>(*at_);
      if (c < 0x20) return Fail(kControl);
      ++at_;
      if (c == '"') return true;
      if (c == '\\' && !Escape()) return false;
    }
  }

  // Scans an escape after its backslash.
  bool Escape() {
    if (at_ == end_) return Fail(kIncomplete);
    if (*at_ != 'u') {
      if (std::string_view("\"\\/bfnrt").find(*at_) == std::string_view::npos) {
        return Fail(kWrongEscape);
      }
      ++at_;
      return true;
    }
    ++at_;
    int unit = 0;
    if (!FourDigits(&unit)) return false;
    if (unit < 0xD800 || unit > 0xDFFF) return true;
    // Half of a surrogate pair; an incomplete text may lack the other half.
    const bool ends = at_ == end_ || (*at_ == '\\' && end_ - at_ == 1);
    if (unit > 0xDBFF || !Take('\\') || !Take('u')) {
      return Fail(ends && unit <= 0xDBFF ? kIncomplete : kUnpaired);
    }
    if (!FourDigits(&unit)) return false;
    return (unit >= 0xDC00 && unit <= 0xDFFF) || Fail(kUnpaired);
  }

  bool FourDigits(int* unit) {
    *unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ == end_) return Fail(kIncomplete);
      const char c = static_cast<char>(*at_ | 0x20);
      const bool is_letter = c >= 'a' && c <= 'f';
      if (!is_letter && !IsDigit(*at_)) return Fail(kWrongEscape);
      *unit = *unit * 16 + (is_letter ? c - 'a' + 10 : *at_ - '0');
    }
    return true;
  }

  const char* const begin_;
  const char* at_;
  const char* const end_;
  const int max_depth_;
  const OnJsonMember* const on_member_;
  int depth_ = 0;
  bool wants_key_ = false;   // the error is at the start of a key
  int64_t num_values_ = 0;   // values scanned to their end
  int64_t max_members_ = 0;  // per object in the current value
  std::string_view error_;   // empty: none
  // Key of the innermost member that is being scanned and is passed on, or
  // would be; empty: none.
  std::string_view outer_key_ = {};
};

}  // namespace

absl::StatusOr<JsonText> ScanJson(std::string_view text, int max_depth,
                                  OnJsonMember on_member) {
  RETURN_IF_ERROR(CheckUtf8(text));
  Scanner scanner(text, max_depth, &on_member);
  JsonText value;
  if (!scanner.All(&value)) return scanner.error();
  return value;
}

std::string_view FirstValue(std::string_view text) {
  Scanner scanner(text, 0, nullptr);
  JsonText value;
  CHECK(scanner.Value(&value)) << "not checked";
  return value.text;
}

JsonItems::JsonItems(std::string_view text)
    : rest_(text.substr(1)), is_object_(text.front() == '{') {}

bool JsonItems::Next() {
  value_ = TakeNext();
  if (value_.empty() || !is_object_) return !value_.empty();
  key_ = std::exchange(value_, TakeNext());
  return true;
}

std::string_view JsonItems::TakeNext() {
  const size_t begin = rest_.find_first_not_of(" \n\t\r,:");
  CHECK(begin != std::string_view::npos) << "not checked";
  rest_.remove_prefix(begin);
  if (rest_.front() == ']' || rest_.front() == '}') return {};
  const std::string_view next = FirstValue(rest_);
  rest_.remove_prefix(next.size());
  return next;
}

json::value ParseChecked(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::error_code error;
  json::value value = json::parse(text, error, {}, options);
  CHECK(!error) << "not checked: " << error.message();
  return value;
}

std::string Unquoted(std::string_view text) {
  if (text.find('\\') == std::string_view::npos) {
    return std::string(text.substr(1, text.size() - 2));
  }
  return std::string(ParseChecked(text).get_string());
}

}  // namespace espalier
