#include "constrain/regex_parser.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr size_t kMaxBytes = 65'536;
constexpr int kMaxDepth = 200;        // nested groups
constexpr int64_t kStepsOfRange = 8;  // time and memory of a class's range
constexpr int kMaxCount = 1 << 20;    // largest count of a repetition

using Kind = RegexNode::Kind;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

CodePointSet Digits() { return {{'0', '9'}}; }
CodePointSet WordCharacters() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
// White space and line terminators of ECMA-262.
CodePointSet Spaces() {
  return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},
          {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
          {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
          {0xFEFF, 0xFEFF}};
}
// "." of ECMA-262: no line terminator.
CodePointSet AnyButLineEnds() {
  return CodePointSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}
      .Complement();
}

// The set of "\d" and the like; nullopt if `letter` names none.
std::optional<CodePointSet> SetOfEscape(char letter) {
  switch (letter) {
    case 'd':
      return Digits();
    case 'D':
      return Digits().Complement();
    case 'w':
      return WordCharacters();
    case 'W':
      return WordCharacters().Complement();
    case 's':
      return Spaces();
    case 'S':
      return Spaces().Complement();
    default:
      return std::nullopt;
  }
}

std::optional<char32_t> ControlOfEscape(char letter) {
  switch (letter) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'v':
      return '\v';
    case 'f':
      return '\f';
    case 'r':
      return '\r';
    default:
      return std::nullopt;
  }
}

RegexNode NodeOf(CodePointSet set) {
  return {.kind = Kind::kSet, .set = std::move(set)};
}

class Parser {
 public:
  Parser(std::string_view pattern, CompileBudget* budget)
      : pattern_(pattern), budget_(*budget) {}

  absl::StatusOr<RegexNode> Parse() {
    ASSIGN_OR_RETURN(RegexNode node, ParseChoice(0));
    if (!AtEnd()) return Error(at_, "\")\" closes no group");
    return node;
  }

 private:
  bool AtEnd() const { return at_ == pattern_.size(); }
  bool Looks(std::string_view text) const {
    return pattern_.substr(at_).starts_with(text);
  }
  bool Take(std::string_view text) {
    if (!Looks(text)) return false;
    at_ += text.size();
    return true;
  }

  template <typename... Parts>
  static absl::Status Error(size_t at, const Parts&... parts) {
    return InvalidArgument("at byte ", at, ": ", parts...);
  }
  template <typename... Parts>
  absl::Status Unsupported(size_t at, const Parts&... parts) const {
    return Error(at, parts..., " is not supported");
  }

  absl::StatusOr<RegexNode> ParseChoice(int depth) {
    ASSIGN_OR_RETURN(RegexNode first, ParseSequence(depth));
    if (!Looks("|")) return first;
    RegexNode choice = {.kind = Kind::kChoice};
    choice.children.push_back(std::move(first));
    while (Take("|")) {
      ASSIGN_OR_RETURN(choice.children.emplace_back(), ParseSequence(depth));
    }
    return AsOneSet(std::move(choice));
  }

  absl::StatusOr<RegexNode> AsOneSet(RegexNode choice) {
    std::vector<CodePointSet::Range> ranges;
    for (const RegexNode& child : choice.children) {
      if (child.kind != Kind::kSet) return choice;
      RETURN_IF_ERROR(
          budget_.Take(kStepsOfRange * std::ssize(child.set.ranges())));
      ranges.insert(ranges.end(), child.set.ranges().begin(),
                    child.set.ranges().end());
    }
    return NodeOf(CodePointSet::Of(std::move(ranges)));
  }

  absl::StatusOr<RegexNode> ParseSequence(int depth) {
    RegexNode sequence = {.kind = Kind::kSequence};
    while (!AtEnd() && !Looks("|") && !Looks(")")) {
      const size_t begin = at_;
      ASSIGN_OR_RETURN(RegexNode atom, ParseAtom(depth));
      ASSIGN_OR_RETURN(RegexNode child, ParseRepeats(std::move(atom), begin));
      if (child.kind == Kind::kSequence) {
        RETURN_IF_ERROR(budget_.Take(std::ssize(child.children)));
        std::ranges::move(child.children,
                          std::back_inserter(sequence.children));
      } else {
        sequence.children.push_back(std::move(child));
      }
    }
    if (sequence.children.size() != 1) return sequence;
    RegexNode only = std::move(sequence.children.front());
    return only;
  }

  // Reads "{2}", "{2,}" or "{2,5}"; false if none is there.
  absl::StatusOr<bool> ParseCounts(RegexNode* repeat) {
    const size_t begin = at_;
    size_t at = at_ + 1;
    const auto number = [&]() -> std::optional<int64_t> {
      if (at >= pattern_.size() || !IsDigit(pattern_[at])) return std::nullopt;
      int64_t value = 0;
      for (; at < pattern_.size() && IsDigit(pattern_[at]); ++at) {
        value =
            std::min<int64_t>(10 * value + (pattern_[at] - '0'), kMaxCount + 1);
      }
      return value;
    };
    const std::optional<int64_t> min = number();
    std::optional<int64_t> max = min;
    if (at < pattern_.size() && pattern_[at] == ',') {
      ++at;
      max = number();
      if (!min && max && at < pattern_.size() && pattern_[at] == '}') {
        return Error(begin, "write \"{0,", *max, "}\" for \"{,", *max, "}\"");
      }
    }
    if (!min || at >= pattern_.size() || pattern_[at] != '}') return false;
    if (*min > kMaxCount || max.value_or(0) > kMaxCount) {
      return Error(begin, "a repetition must be at most ", kMaxCount,
                   " times, got ",
                   ShownInQuotes(pattern_.substr(begin, at + 1 - begin)));
    }
    if (max && *max < *min) {
      return Error(begin, "counts must ascend, got ",
                   ShownInQuotes(pattern_.substr(begin, at + 1 - begin)));
    }
    repeat->at = static_cast<int>(begin);
    repeat->min_count = static_cast<int>(*min);
    repeat->max_count = max ? static_cast<int>(*max) : RegexNode::kUnbounded;
    at_ = at + 1;
    return true;
  }

  absl::StatusOr<bool> ParseRepeat(RegexNode* repeat) {
    if (Looks("{")) return ParseCounts(repeat);
    if (Take("*")) {
      *repeat = {.kind = Kind::kRepeat};
    } else if (Take("+")) {
      *repeat = {.kind = Kind::kRepeat, .min_count = 1};
    } else if (Take("?")) {
      *repeat = {.kind = Kind::kRepeat, .max_count = 1};
    } else {
      return false;
    }
    return true;
  }

  // Reads what repeats `atom`, which began at `begin`.
  absl::StatusOr<RegexNode> ParseRepeats(RegexNode atom, size_t begin) {
    RegexNode repeat = {.kind = Kind::kRepeat};
    const size_t at = at_;
    ASSIGN_OR_RETURN(const bool repeats, ParseRepeat(&repeat));
    if (!repeats) return atom;
    const bool is_anchor =
        atom.kind == Kind::kAtStart || atom.kind == Kind::kAtEnd;
    if (is_anchor && pattern_[begin] != '(') {
      return Error(at, ShownInQuotes(pattern_.substr(at, at_ - at)),
                   " repeats the anchor at byte ", begin);
    }
    // A lazy repetition has the same texts.
    if (!Take("?") && Looks("+")) {
      return Unsupported(at_, "a possessive repetition");
    }
    RegexNode again = {.kind = Kind::kRepeat};
    const size_t second = at_;
    ASSIGN_OR_RETURN(const bool twice, ParseRepeat(&again));
    if (twice) {
      return Error(second, "nothing to repeat before ",
                   ShownInQuotes(pattern_.substr(second, at_ - second)));
    }
    repeat.children.push_back(std::move(atom));
    return repeat;
  }

  absl::StatusOr<RegexNode> ParseAtom(int depth) {
    const size_t begin = at_;
    switch (pattern_[at_]) {
      case '(':
        return ParseGroup(depth);
      case '[':
        return ParseClass();
      case '\\':
        return ParseEscape();
      case '^':
        ++at_;
        return RegexNode{.kind = Kind::kAtStart};
      case '$':
        ++at_;
        return RegexNode{.kind = Kind::kAtEnd};
      case '.':
        ++at_;
        return NodeOf(AnyButLineEnds());
      case '*':
      case '+':
      case '?':
        return Error(begin, "nothing to repeat before \"", pattern_[begin],
                     "\"");
      case '{': {
        RegexNode counts;
        ASSIGN_OR_RETURN(const bool repeats, ParseCounts(&counts));
        if (repeats) {
          return Error(begin, "nothing to repeat before ",
                       ShownInQuotes(pattern_.substr(begin, at_ - begin)));
        }
        break;
      }
      default:
        break;
    }
    const char32_t c = TakeCodePoint();
    return NodeOf({{c, c}});
  }

  absl::StatusOr<RegexNode> ParseGroup(int depth) {
    const size_t begin = at_;
    if (depth >= kMaxDepth) {
      return Error(begin, "groups must nest at most ", kMaxDepth, " deep");
    }
    ++at_;
    RETURN_IF_ERROR(ParseGroupKind(begin));
    ASSIGN_OR_RETURN(RegexNode node, ParseChoice(depth + 1));
    if (!Take(")")) return Error(begin, "the group is not closed by \")\"");
    return node;
  }

  absl::Status ParseGroupKind(size_t begin) {
    if (!Take("?") || Take(":")) return absl::OkStatus();
    for (const char* look : {"=", "!", "<=", "<!"}) {
      if (Looks(look)) {
        return Unsupported(begin, look[0] == '<' ? "look-behind" : "look-ahead",
                           " \"(?", look, "\"");
      }
    }
    if (Looks(">")) return Unsupported(begin, "an atomic group \"(?>\"");
    if (Looks("#")) return Unsupported(begin, "a comment \"(?#\"");
    if (Take("P<") || Take("<")) {
      const size_t name = at_;
      while (!AtEnd() && (IsLetter(pattern_[at_]) || IsDigit(pattern_[at_]) ||
                          pattern_[at_] == '_')) {
        ++at_;
      }
      if (at_ == name || IsDigit(pattern_[name]) || !Take(">")) {
        return Error(begin, "the group's name must be letters, digits and _");
      }
      return absl::OkStatus();
    }
    if (Looks("P")) return Unsupported(begin, "\"(?P\" without a name");
    if (AtEnd()) return Error(begin, "the group is not closed by \")\"");
    const std::string_view flags = pattern_.substr(at_);
    const size_t end = flags.find_first_of(":)");
    return Unsupported(
        begin, "the group of flags ",
        BytesInQuotes(Concat("(?", flags.substr(0, std::min(end, size_t{8})))));
  }

  // REQUIRES: the pattern is UTF-8 and not at its end.
  char32_t TakeCodePoint() {
    const auto byte = [&](size_t i) {
      return static_cast<char32_t>(static_cast<uint8_t>(pattern_[at_ + i]));
    };
    const char32_t first = byte(0);
    const int size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    char32_t c = size == 1 ? first : first & (0x7F >> size);
    for (int i = 1; i < size; ++i) c = c << 6 | (byte(i) & 0x3F);
    at_ += size;
    return c;
  }

  // Reads `num_digits` hexadecimal digits; nullopt if they are not there.
  std::optional<char32_t> TakeHex(size_t num_digits) {
    if (at_ + num_digits > pattern_.size()) return std::nullopt;
    char32_t value = 0;
    for (size_t i = 0; i < num_digits; ++i) {
      const char c = pattern_[at_ + i];
      if (IsDigit(c)) {
        value = value * 16 + (c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + (c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        value = value * 16 + (c - 'A' + 10);
      } else {
        return std::nullopt;
      }
    }
    at_ += num_digits;
    return value;
  }

  // Reads what follows "\u": "00e9", a pair of surrogates, or "{1F600}".
  absl::StatusOr<char32_t> ParseUnicode(size_t begin) {
    char32_t c = 0;
    if (Take("{")) {
      const size_t end = pattern_.find('}', at_);
      const size_t num_digits = end == pattern_.npos ? 0 : end - at_;
      const auto value = num_digits >= 1 && num_digits <= 8
                             ? TakeHex(num_digits)
                             : std::nullopt;
      if (!value || *value > CodePointSet::kLast) {
        return Error(begin, "\"\\u{\" must have a code point up to 10FFFF");
      }
      ++at_;
      c = *value;
    } else {
      const auto value = TakeHex(4);
      if (!value) return Error(begin, "\"\\u\" must have four hex digits");
      c = *value;
      if (c >= 0xD800 && c < 0xDC00 && Take("\\u")) {
        const auto low = TakeHex(4);
        if (!low || *low < 0xDC00 || *low > 0xDFFF) {
          return Error(begin, "half of a pair of surrogates");
        }
        c = 0x10000 + ((c - 0xD800) << 10) + (*low - 0xDC00);
      }
    }
    if (c >= 0xD800 && c <= 0xDFFF) {
      return Error(begin, "half of a pair of surrogates");
    }
    return c;
  }

  // Reads what follows "\p" or "\P".
  absl::StatusOr<CodePointSet> ParseProperty(size_t begin, bool negated) {
    const size_t end = pattern_.find('}', at_);
    if (!Take("{") || end == pattern_.npos) {
      return Error(begin, "a property must be in braces, as \"\\p{Lu}\"");
    }
    const std::string_view typed = pattern_.substr(at_, end - at_);
    std::string_view name = typed;
    for (const std::string_view prefix : {"gc=", "General_Category="}) {
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    }
    const CodePointSet* const set = CodePointSet::OfCategory(name);
    if (set == nullptr) {
      return Unsupported(begin, "property ", ShownInQuotes(typed),
                         ", which is no general category such as \"L\" or "
                         "\"Nd\",");
    }
    at_ = end + 1;
    RETURN_IF_ERROR(budget_.Take(kStepsOfRange *
                                 static_cast<int64_t>(set->ranges().size())));
    return negated ? set->Complement() : *set;
  }

  // Reads an escape that stands for one code point or for a set.
  // REQUIRES: "\" is next.
  absl::StatusOr<CodePointSet> ParseEscaped(bool in_class) {
    const size_t begin = at_++;
    if (AtEnd()) return Error(begin, "nothing follows \"\\\"");
    const char c = pattern_[at_];
    const auto one = [](char32_t code_point) {
      return CodePointSet{{code_point, code_point}};
    };
    if (static_cast<uint8_t>(c) >= 0x80) return one(TakeCodePoint());
    ++at_;
    if (auto set = SetOfEscape(c)) return *std::move(set);
    if (const auto control = ControlOfEscape(c)) return one(*control);
    if (c == 'p' || c == 'P') return ParseProperty(begin, c == 'P');
    if (c == 'u') {
      ASSIGN_OR_RETURN(const char32_t code_point, ParseUnicode(begin));
      return one(code_point);
    }
    if (c == 'x') {
      const auto value = TakeHex(2);
      if (!value) return Error(begin, "\"\\x\" must have two hex digits");
      return one(*value);
    }
    if (c == 'c' && !AtEnd() && IsLetter(pattern_[at_])) {
      return one(pattern_[at_++] % 32);
    }
    if (c == 'b' && in_class) return one('\b');
    if (c == 'b' || c == 'B') {
      return Unsupported(begin, "a word boundary \"\\", c, "\"");
    }
    if (c == '0' && (AtEnd() || !IsDigit(pattern_[at_]))) return one(0);
    if (IsDigit(c) || c == 'k') {
      return Unsupported(begin, "a back-reference or octal \"\\", c, "\"");
    }
    if (IsLetter(c)) return Unsupported(begin, "escape \"\\", c, "\"");
    return one(static_cast<char32_t>(c));
  }

  absl::StatusOr<RegexNode> ParseEscape() {
    // Python's and PCRE's names of the anchors.
    if (Take("\\A")) return RegexNode{.kind = Kind::kAtStart};
    if (Take("\\Z") || Take("\\z")) return RegexNode{.kind = Kind::kAtEnd};
    ASSIGN_OR_RETURN(CodePointSet set, ParseEscaped(/*in_class=*/false));
    return NodeOf(std::move(set));
  }

  absl::StatusOr<CodePointSet> ParseClassAtom() {
    if (Looks("\\")) return ParseEscaped(/*in_class=*/true);
    if (Looks("[:")) return Unsupported(at_, "a POSIX class \"[:\"");
    const char32_t c = TakeCodePoint();
    return CodePointSet{{c, c}};
  }

  static bool IsOne(const CodePointSet& set) {
    return set.ranges().size() == 1 &&
           set.ranges()[0].first == set.ranges()[0].last;
  }

  absl::StatusOr<RegexNode> ParseClass() {
    const size_t begin = at_++;
    const bool negated = Take("^");
    if (Looks("]")) {
      return Error(begin, "the class has no member; \"\\]\" is a bracket");
    }
    std::vector<CodePointSet::Range> ranges;
    while (!Take("]")) {
      if (AtEnd()) return Error(begin, "the class is not closed by \"]\"");
      const size_t first_at = at_;
      ASSIGN_OR_RETURN(const CodePointSet first, ParseClassAtom());
      const bool is_range =
          Looks("-") && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      if (!is_range) {
        ranges.insert(ranges.end(), first.ranges().begin(),
                      first.ranges().end());
        continue;
      }
      ++at_;
      ASSIGN_OR_RETURN(const CodePointSet last, ParseClassAtom());
      if (!IsOne(first) || !IsOne(last) ||
          first.ranges()[0].first > last.ranges()[0].first) {
        return Error(first_at, "a range must be of two ascending characters, ",
                     "got ",
                     ShownInQuotes(pattern_.substr(first_at, at_ - first_at)));
      }
      ranges.push_back({first.ranges()[0].first, last.ranges()[0].first});
    }
    RETURN_IF_ERROR(
        budget_.Take(kStepsOfRange * static_cast<int64_t>(ranges.size())));
    CodePointSet set = CodePointSet::Of(std::move(ranges));
    return NodeOf(negated ? set.Complement() : std::move(set));
  }

  const std::string_view pattern_;
  CompileBudget& budget_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<RegexNode> ParseRegex(std::string_view pattern,
                                     CompileBudget* budget) {
  if (pattern.size() > kMaxBytes) {
    return InvalidArgument("it must have at most ", kMaxBytes, " bytes, got ",
                           pattern.size());
  }
  RETURN_IF_ERROR(CheckUtf8(pattern));
  return Parser(pattern, budget).Parse();
}

}  // namespace espalier
