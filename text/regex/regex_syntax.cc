#include "text/regex/regex_syntax.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/status.h"
#include "text/regex/regex_reader.h"

namespace espalier {
namespace {

class OnigurumaRewriter : private OnigurumaReader {
 public:
  using OnigurumaReader::OnigurumaReader;

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

  // Start in out_ of an atom that a quantifier may follow.
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

  absl::Status RewriteEscape() {
    const std::string_view rest = pattern_.substr(at_);
    for (const std::string_view anchor : {"\\A", "\\z", "\\Z"}) {
      if (!rest.starts_with(anchor)) continue;
      at_ += 1;
      return CopyWithoutAtom(anchor);
    }
    if (rest.starts_with("\\b") || rest.starts_with("\\B")) {
      const std::string before = Concat("(?<=[", kWordCharacters, "])");
      const std::string no_before = Concat("(?<![", kWordCharacters, "])");
      const std::string after = Concat("(?=[", kWordCharacters, "])");
      const std::string no_after = Concat("(?![", kWordCharacters, "])");
      at_ += 1;
      return CopyWithoutAtom(
          rest[1] == 'b'
              ? Concat("(?:", before, no_after, "|", no_before, after, ")")
              : Concat("(?:", before, after, "|", no_before, no_after, ")"));
    }
    bool is_negated = false;
    ASSIGN_OR_RETURN(const std::string characters,
                     TakeClassEscape(kWordCharacters, &is_negated));
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
                       TakeClassEscape(kWordCharactersInClass, &is_negated));
      if (is_negated) return Unsupported("\\W or \\H inside of a class");
      if (!characters.empty()) {
        out_ += characters;
        // The hyphen does not begin a range.
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

  std::string out_;
  std::vector<Group> groups_;
  std::optional<size_t> atom_;  // operand of a quantifier
  bool ignores_case_ = false;
  std::string case_run_;  // letters that follow each other under (?i)
};

}  // namespace

absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern) {
  return OnigurumaRewriter(pattern).Rewrite();
}

}  // namespace espalier
