#include "text/regex_syntax.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

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
constexpr char kWords[] = R"(\p{Alphabetic}\p{M}\p{N}\p{Pc})";
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

class OnigurumaRewriter {
 public:
  explicit OnigurumaRewriter(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Rewrite() {
    if (Take("(?i)")) ignores_case_ = true;
    while (at_ < pattern_.size()) RETURN_IF_ERROR(RewriteOne());
    if (!groups_.empty()) return Unsupported("a group without its end");
    RETURN_IF_ERROR(CheckCaseRun());
    return std::string(starts_ignoring_case() ? "(?i)" : "") + out_;
  }

 private:
  struct Group {
    size_t begin;  // in out_
    bool ignored_case;
    bool is_assertion;
  };

  bool starts_ignoring_case() const { return pattern_.starts_with("(?i)"); }

  absl::Status Unsupported(std::string_view what) const {
    return InvalidArgument("pattern ", ShownInQuotes(pattern_), ", byte ", at_,
                           ": ", what, " is not supported");
  }

  bool Take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  // Where an atom that a quantifier may follow begins in out_.
  void BeginAtom() { atom_ = out_.size(); }
  void EndOfRun() { case_run_.clear(); }

  absl::Status RewriteOne() {
    const char c = pattern_[at_];
    switch (c) {
      case '\\':
        return RewriteEscape();
      case '[':
        RETURN_IF_ERROR(CheckCaseRun());
        return RewriteClass();
      case '(':
        RETURN_IF_ERROR(CheckCaseRun());
        return OpenGroup();
      case ')':
        RETURN_IF_ERROR(CheckCaseRun());
        return CloseGroup();
      case '|':
        RETURN_IF_ERROR(CheckCaseRun());
        return CopyWithoutAtom("|");
      case '^':
      case '$':
        return CopyWithoutAtom(c == '^' ? "(?m:^)" : "(?m:$)");
      case '.':
        return CopyAtom(1, "[^\\x0a]");
      case '*':
      case '+':
      case '?':
        return CopyQuantifier(std::string(1, c), false);
      case '{':
        return RewriteInterval();
      default:
        return CopyLiteral();
    }
  }

  absl::Status CopyWithoutAtom(std::string_view text) {
    ++at_;
    out_ += text;
    atom_.reset();
    return absl::OkStatus();
  }

  absl::Status CopyAtom(size_t num_bytes, std::string_view text) {
    at_ += num_bytes;
    BeginAtom();
    out_ += text;
    EndOfRun();
    return absl::OkStatus();
  }

  absl::Status CopyLiteral() {
    BeginAtom();
    const auto lead = static_cast<unsigned char>(pattern_[at_]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (ignores_case_) {
      if (size > 1) return Unsupported("a letter of no ASCII beside (?i)");
      case_run_ += static_cast<char>(lead | 0x20);
    }
    out_ += pattern_.substr(at_, size);
    at_ += size;
    return absl::OkStatus();
  }

  // Letters that together are the lower case of one: ß, ﬀ, ﬁ, ﬂ, ﬅ.
  absl::Status CheckCaseRun() {
    for (const std::string_view joined : {"ss", "ff", "fi", "fl", "st"}) {
      if (case_run_.find(joined) != std::string::npos) {
        return Unsupported(Concat("(?i) with ", joined));
      }
    }
    EndOfRun();
    return absl::OkStatus();
  }

  absl::Status OpenGroup() {
    ++at_;
    Group group{out_.size(), ignores_case_, false};
    if (Take("?i:")) {
      ignores_case_ = true;
      out_ += "(?i:";
    } else if (Take("?-i:")) {
      ignores_case_ = false;
      out_ += "(?-i:";
    } else if (!pattern_.substr(at_).starts_with("?") || Take("?:")) {
      out_ += "(?:";
    } else {
      for (const std::string_view kind : {"?=", "?!", "?<=", "?<!", "?>"}) {
        if (!Take(kind)) continue;
        group.is_assertion = kind != "?>";
        out_ += Concat("(", kind);
        groups_.push_back(group);
        atom_.reset();
        return absl::OkStatus();
      }
      return Unsupported("this kind of group");
    }
    groups_.push_back(group);
    atom_.reset();
    return absl::OkStatus();
  }

  absl::Status CloseGroup() {
    if (groups_.empty()) return Unsupported("the end of no group");
    ++at_;
    out_ += ')';
    atom_ = groups_.back().begin;
    if (groups_.back().is_assertion) atom_.reset();
    ignores_case_ = groups_.back().ignored_case;
    groups_.pop_back();
    return absl::OkStatus();
  }

  absl::Status CopyQuantifier(std::string_view quantifier, bool is_interval) {
    if (!atom_) return Unsupported("a quantifier of nothing");
    if (is_interval && quantifier.find(',') == std::string_view::npos &&
        pattern_.substr(at_).starts_with("?")) {
      return Unsupported("? after {n}");
    }
    if (!is_interval) at_ += quantifier.size();
    out_ += quantifier;
    if (Take("?")) {
      out_ += '?';
    } else if (Take("+")) {
      // After an interval Ruby's + is one more quantifier.
      if (is_interval) out_.insert(*atom_, "(?:");
      out_ += is_interval ? ")+" : "+";
    }
    atom_.reset();
    return CheckCaseRun();
  }

  absl::Status RewriteInterval() {
    const size_t end = pattern_.find('}', at_);
    const std::string_view inside =
        end == std::string_view::npos ? std::string_view()
                                      : pattern_.substr(at_ + 1, end - at_ - 1);
    const bool has_digits =
        inside.find_first_of("0123456789") != std::string_view::npos &&
        inside.find_first_not_of("0123456789,") == std::string_view::npos &&
        std::ranges::count(inside, ',') <= 1;
    if (!has_digits) return Unsupported("{ without an interval");
    at_ = end + 1;
    return CopyQuantifier(
        Concat("{", inside.starts_with(",") ? "0" : "", inside, "}"), true);
  }

  // The characters of an escape that is a class, without brackets; empty if it
  // is none. Moves past it.
  absl::StatusOr<std::string> TakeClassEscape(bool* is_negated) {
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
    if (lower == 'w') characters = kWords;
    if (lower == 'h') characters = kHexDigits;
    *is_negated = rest[1] == 'W' || rest[1] == 'H';
    if (!characters.empty()) at_ += 2;
    return characters;
  }

  absl::StatusOr<std::string> TakeProperty() {
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

  // The one character that an escape stands for, as PCRE2 writes it.
  absl::StatusOr<std::string> TakeCharacterEscape() {
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
    if (IsLetterOrDigit(c) || static_cast<unsigned char>(c) >= 0x80) {
      return Unsupported(Concat("the escape \\", c));
    }
    at_ += 2;
    return Concat("\\", c);
  }

  absl::StatusOr<std::string> TakeHexEscape() {
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

  absl::Status RewriteEscape() {
    const std::string_view rest = pattern_.substr(at_);
    for (const std::string_view anchor : {"\\A", "\\z", "\\Z"}) {
      if (!rest.starts_with(anchor)) continue;
      at_ += 1;
      return CopyWithoutAtom(anchor);
    }
    if (rest.starts_with("\\b") || rest.starts_with("\\B")) {
      const std::string before = Concat("(?<=[", kWords, "])");
      const std::string no_before = Concat("(?<![", kWords, "])");
      const std::string after = Concat("(?=[", kWords, "])");
      const std::string no_after = Concat("(?![", kWords, "])");
      at_ += 1;
      return CopyWithoutAtom(
          rest[1] == 'b'
              ? Concat("(?:", before, no_after, "|", no_before, after, ")")
              : Concat("(?:", before, after, "|", no_before, no_after, ")"));
    }
    bool is_negated = false;
    ASSIGN_OR_RETURN(const std::string characters,
                     TakeClassEscape(&is_negated));
    if (!characters.empty()) {
      return CopyAtom(0, Concat(is_negated ? "[^" : "[", characters, "]"));
    }
    const bool is_letter_code =
        ignores_case_ && rest.size() > 1 && (rest[1] == 'x' || rest[1] == 'u');
    if (is_letter_code) return Unsupported("a code beside (?i)");
    ASSIGN_OR_RETURN(const std::string character, TakeCharacterEscape());
    return CopyAtom(0, character);
  }

  absl::Status RewriteClass() {
    const size_t begin = out_.size();
    ++at_;
    out_ += '[';
    if (Take("^")) out_ += '^';
    if (Take("]")) return Unsupported("] as the first of a class");
    bool is_first = true;
    while (!Take("]")) {
      if (at_ == pattern_.size()) return Unsupported("a class without its end");
      RETURN_IF_ERROR(RewriteClassItem(is_first));
      is_first = false;
    }
    out_ += ']';
    atom_ = begin;
    return absl::OkStatus();
  }

  absl::Status RewriteClassItem(bool is_first) {
    const std::string_view rest = pattern_.substr(at_);
    if (rest.starts_with("[")) return Unsupported("[ inside of a class");
    if (rest.starts_with("&&")) return Unsupported("&& inside of a class");
    if (rest.starts_with("-") && !is_first && !rest.starts_with("-]")) {
      return Unsupported("this - inside of a class");
    }
    bool is_negated = false;
    if (rest.starts_with("\\")) {
      ASSIGN_OR_RETURN(const std::string characters,
                       TakeClassEscape(&is_negated));
      if (is_negated) return Unsupported("\\W or \\H inside of a class");
      if (!characters.empty()) {
        out_ += characters;
        // What follows is no end of a range.
        if (pattern_.substr(at_).starts_with("-]")) {
          ++at_;
          out_ += "\\-";
        }
        return absl::OkStatus();
      }
    }
    RETURN_IF_ERROR(CopyClassCharacter());
    if (pattern_.substr(at_).starts_with("-]") || !Take("-")) {
      return absl::OkStatus();
    }
    out_ += '-';
    if (at_ == pattern_.size() || pattern_[at_] == '[') {
      return Unsupported("this range");
    }
    return CopyClassCharacter();
  }

  absl::Status CopyClassCharacter() {
    if (pattern_[at_] == '\\') {
      if (pattern_.substr(at_).starts_with("\\b")) {
        return Unsupported("\\b inside of a class");
      }
      ASSIGN_OR_RETURN(const std::string character, TakeCharacterEscape());
      out_ += character;
      return absl::OkStatus();
    }
    const auto lead = static_cast<unsigned char>(pattern_[at_]);
    if (ignores_case_ && lead >= 0x80) {
      return Unsupported("a letter of no ASCII beside (?i)");
    }
    if (lead == '-' || lead == '^') out_ += '\\';
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    out_ += pattern_.substr(at_, size);
    at_ += size;
    return absl::OkStatus();
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  std::vector<Group> groups_;
  std::optional<size_t> atom_;  // of a quantifier
  bool ignores_case_ = false;
  std::string case_run_;  // letters that follow each other under (?i)
};

}  // namespace

absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern) {
  return OnigurumaRewriter(pattern).Rewrite();
}

}  // namespace espalier
