#include "constrain/gbnf_parser.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"

namespace espalier {
namespace {

class GbnfParser {
 public:
  GbnfParser(std::string_view text, CompileBudget* budget)
      : text_(text), budget_(*budget) {}

  absl::StatusOr<Grammar> Parse() {
    if (text_.size() > kMaxBytes) {
      return InvalidArgument("it must have at most ", kMaxBytes, " bytes, got ",
                             text_.size());
    }
    RETURN_IF_ERROR(CheckUtf8(text_));
    SkipSpace(/*lines=*/true);
    while (!AtEnd()) {
      RETURN_IF_ERROR(ParseRule());
      SkipSpace(/*lines=*/true);
    }
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (is_defined_[i]) continue;
      return Error(first_named_[i], "no rule ", ShownInQuotes(rules_[i].name),
                   " is defined");
    }
    const auto root = numbers_.find(std::string_view("root"));
    if (root == numbers_.end()) {
      return InvalidArgument("the grammar must have a rule named \"root\"");
    }
    return Grammar{.rules = std::move(rules_), .root = root->second};
  }

 private:
  using Kind = GrammarNode::Kind;
  static constexpr size_t kMaxBytes = 1 << 20;
  static constexpr int kMaxDepth = 200;        // nested groups
  static constexpr int kMaxCount = 1 << 20;    // largest count of a repetition
  static constexpr int64_t kStepsOfNode = 16;  // time and memory
  static constexpr int64_t kStepsOfRange = 8;  // a range of a class
  static constexpr size_t kShownBytes = 24;    // what is unexpected

  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
  static bool IsLetter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }
  static bool IsOfName(char c) {
    return IsLetter(c) || IsDigit(c) || c == '-' || c == '_';
  }
  static bool IsPunctuation(char c) {
    return c > ' ' && c < 0x7F && !IsLetter(c) && !IsDigit(c);
  }

  // The control characters of escapes by a letter.
  static std::optional<char32_t> ControlOfEscape(char letter) {
    switch (letter) {
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      default:
        return std::nullopt;
    }
  }

  // The number of hexadecimal digits that follow an escape; 0: none.
  static int NumHexDigits(char letter) {
    return letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
  }

  static void AppendUtf8(char32_t c, std::string* out) {
    const auto add = [&](char32_t byte) { *out += static_cast<char>(byte); };
    if (c < 0x80) return add(c);
    if (c < 0x800) {
      add(0xC0 | c >> 6);
      return add(0x80 | (c & 0x3F));
    }
    if (c < 0x10000) {
      add(0xE0 | c >> 12);
    } else {
      add(0xF0 | c >> 18);
      add(0x80 | (c >> 12 & 0x3F));
    }
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }

  bool AtEnd() const { return at_ == text_.size(); }
  bool Looks(std::string_view text) const {
    return text_.substr(at_).starts_with(text);
  }
  bool LooksAt(bool (*is)(char)) const { return !AtEnd() && is(text_[at_]); }
  bool Take(std::string_view text) {
    if (!Looks(text)) return false;
    at_ += text.size();
    return true;
  }

  template <typename... Parts>
  absl::Status Error(size_t at, const Parts&... parts) const {
    const std::string_view before = text_.substr(0, at);
    const size_t line_end = before.rfind('\n');
    const size_t line_begin = line_end == before.npos ? 0 : line_end + 1;
    return InvalidArgument("at line ",
                           1 + std::count(before.begin(), before.end(), '\n'),
                           ", column ", 1 + at - line_begin, ": ", parts...);
  }
  // Returns what is at a place, as an error shows it.
  std::string ShownAt(size_t at) const {
    if (at == text_.size()) return "the end of the grammar";
    std::string_view rest = text_.substr(at);
    rest = rest.substr(0, rest.find('\n'));
    return rest.empty() ? "the end of the line"
                        : BytesInQuotes(rest.substr(
                              0, std::min(rest.size(), kShownBytes)));
  }

  // Skips spaces and comments; line ends as well if `lines`.
  void SkipSpace(bool lines) {
    for (; !AtEnd(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        if (AtEnd() || !lines) return;
        continue;
      }
      const bool is_space = c == ' ' || c == '\t';
      const bool is_line_end = c == '\n' || c == '\r';
      if (!is_space && !(lines && is_line_end)) return;
    }
  }

  std::string_view TakeName() {
    const size_t begin = at_;
    while (LooksAt(IsOfName)) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // True if a rule's definition begins here.
  bool LooksAtRule() const {
    size_t at = at_;
    while (at < text_.size() && IsOfName(text_[at])) ++at;
    if (at == at_) return false;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return text_.substr(at).starts_with("::=");
  }

  // True if a rule of Lark begins `text`, "?start: ..." or "WORD.2: ...", or
  // one of its comments.
  static bool IsOfLark(std::string_view text) {
    if (text.starts_with("//")) return true;
    const auto skip = [&](auto is_skipped) {
      const auto end = std::ranges::find_if_not(text, is_skipped);
      text.remove_prefix(end - text.begin());
    };
    skip([](char c) { return c == '?' || c == '!'; });
    if (text.empty() || !(IsLetter(text[0]) || text[0] == '_')) return false;
    skip(IsOfName);
    if (text.starts_with(".")) {
      text.remove_prefix(1);
      skip(IsOfName);  // a priority
    }
    skip([](char c) { return c == ' ' || c == '\t'; });
    return text.starts_with(":") && !text.starts_with("::");
  }

  absl::StatusOr<int> NumberOf(std::string_view name, size_t at) {
    const auto found = numbers_.find(name);
    if (found != numbers_.end()) return found->second;
    RETURN_IF_ERROR(budget_.Take(kStepsOfNode));
    const int number = static_cast<int>(rules_.size());
    numbers_.emplace(name, number);
    rules_.push_back({.name = std::string(name)});
    is_defined_.push_back(false);
    first_named_.push_back(at);
    return number;
  }

  absl::Status ParseRule() {
    const size_t begin = at_;
    if (Looks("%")) {
      return Error(begin, "a directive of Lark is not supported, got ",
                   ShownAt(begin), "; a grammar is in GBNF, as of llama.cpp");
    }
    const std::string_view name = TakeName();
    SkipSpace(/*lines=*/false);
    if (name.empty() || !Take("::=")) {
      return Error(begin, "a rule is written name ::= ..., got ",
                   ShownAt(begin),
                   IsOfLark(text_.substr(begin))
                       ? "; Lark is not supported, a grammar is in GBNF, as of "
                         "llama.cpp"
                       : "");
    }
    ASSIGN_OR_RETURN(const int number, NumberOf(name, begin));
    if (is_defined_[number]) {
      return Error(begin, "rule ", ShownInQuotes(name), " is defined twice");
    }
    is_defined_[number] = true;
    ASSIGN_OR_RETURN(GrammarNode body, ParseChoice(0));
    rules_[number].body = std::move(body);
    if (!AtEnd() && !LooksAtRule()) {
      return Error(at_, Looks(")") ? "\")\" closes no group" : "unexpected ",
                   Looks(")") ? "" : ShownAt(at_));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<GrammarNode> ParseChoice(int depth) {
    ASSIGN_OR_RETURN(GrammarNode first, ParseSequence(depth));
    if (!Looks("|")) return first;
    GrammarNode choice = {.kind = Kind::kChoice};
    choice.children.push_back(std::move(first));
    while (Take("|")) {
      ASSIGN_OR_RETURN(choice.children.emplace_back(), ParseSequence(depth));
    }
    return choice;
  }

  // Reads elements up to "|", ")", or the end of the rule: where the grammar
  // ends, or a line on which another rule begins.
  absl::StatusOr<GrammarNode> ParseSequence(int depth) {
    GrammarNode sequence = {.kind = Kind::kSequence};
    while (true) {
      SkipSpace(/*lines=*/false);
      if (AtEnd()) break;
      if (text_[at_] == '\n' || text_[at_] == '\r') {
        SkipSpace(/*lines=*/true);
        if (AtEnd() || (depth == 0 && LooksAtRule())) break;
      }
      if (Looks("|") || Looks(")")) break;
      RETURN_IF_ERROR(budget_.Take(kStepsOfNode));
      RETURN_IF_ERROR(ParseElement(depth, &sequence.children));
    }
    if (sequence.children.size() != 1) return sequence;
    GrammarNode only = std::move(sequence.children.front());
    return only;
  }

  // Appends an element, or repeats the last one.
  absl::Status ParseElement(int depth, std::vector<GrammarNode>* elements) {
    const size_t begin = at_;
    GrammarNode repeat = {.kind = Kind::kRepeat};
    ASSIGN_OR_RETURN(const bool repeats, ParseRepeat(&repeat));
    if (repeats) {
      if (elements->empty()) {
        return Error(begin, "nothing to repeat before ", ShownAt(begin));
      }
      if (elements->back().kind == Kind::kRepeat && is_repeated_) {
        return Error(begin, "nothing to repeat before ", ShownAt(begin));
      }
      is_repeated_ = true;
      repeat.children.push_back(std::move(elements->back()));
      elements->back() = std::move(repeat);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(GrammarNode element, ParseAtom(depth));
    is_repeated_ = false;
    elements->push_back(std::move(element));
    return absl::OkStatus();
  }

  absl::StatusOr<bool> ParseRepeat(GrammarNode* repeat) {
    if (Looks("{")) {
      RETURN_IF_ERROR(ParseCounts(repeat));
      return true;
    }
    if (Take("*")) return true;
    if (Take("+")) {
      repeat->min_count = 1;
      return true;
    }
    if (!Take("?")) return false;
    repeat->max_count = 1;
    return true;
  }

  std::optional<int> TakeCount() {
    SkipSpace(/*lines=*/false);
    if (!LooksAt(IsDigit)) return std::nullopt;
    int value = 0;
    for (; LooksAt(IsDigit); ++at_) {
      value = std::min(10 * value + (text_[at_] - '0'), kMaxCount + 1);
    }
    SkipSpace(/*lines=*/false);
    return value;
  }

  // Reads "{2}", "{2,}" or "{2,5}".
  absl::Status ParseCounts(GrammarNode* repeat) {
    const size_t begin = at_++;
    const std::optional<int> min = TakeCount();
    std::optional<int> max = min;
    if (min && Take(",")) max = TakeCount();
    if (!min || !Take("}")) {
      return Error(begin, "counts are written {2}, {2,} or {2,5}, got ",
                   ShownAt(begin));
    }
    if (*min > kMaxCount || max.value_or(0) > kMaxCount) {
      return Error(begin, "a repetition must be at most ", kMaxCount,
                   " times, got ", ShownAt(begin));
    }
    if (max && *max < *min) {
      return Error(begin, "counts must ascend, got ", ShownAt(begin));
    }
    repeat->min_count = *min;
    repeat->max_count = max ? *max : GrammarNode::kUnbounded;
    return absl::OkStatus();
  }

  absl::StatusOr<GrammarNode> ParseAtom(int depth) {
    const size_t begin = at_;
    if (Looks("\"")) return ParseText();
    if (Looks("[")) return ParseClass();
    if (Looks("(")) return ParseGroup(depth);
    if (Take(".")) {
      return GrammarNode{.kind = Kind::kSet, .set = CodePointSet::All()};
    }
    if (LooksAt(IsOfName)) {
      ASSIGN_OR_RETURN(const int rule, NumberOf(TakeName(), begin));
      return GrammarNode{.kind = Kind::kRule, .rule = rule};
    }
    if (Looks("<") || Looks("!<")) {
      return Error(begin, "a token by its name or id is not supported, got ",
                   ShownAt(begin));
    }
    if (Looks("/")) {
      return Error(begin, "a regular expression of Lark is not supported, got ",
                   ShownAt(begin));
    }
    return Error(begin, "unexpected ", ShownAt(begin));
  }

  absl::StatusOr<GrammarNode> ParseGroup(int depth) {
    const size_t begin = at_;
    if (depth >= kMaxDepth) {
      return Error(begin, "groups must nest at most ", kMaxDepth, " deep");
    }
    ++at_;
    SkipSpace(/*lines=*/true);
    ASSIGN_OR_RETURN(GrammarNode node, ParseChoice(depth + 1));
    if (!Take(")")) return Error(begin, "the group is not closed by \")\"");
    return node;
  }

  absl::StatusOr<GrammarNode> ParseText() {
    const size_t begin = at_++;
    GrammarNode node = {.kind = Kind::kText};
    while (!Take("\"")) {
      if (AtEnd()) return Error(begin, "the text is not closed by '\"'");
      RETURN_IF_ERROR(budget_.Take(1));
      ASSIGN_OR_RETURN(const char32_t c, ParseCharacter());
      AppendUtf8(c, &node.text);
    }
    return node;
  }

  absl::StatusOr<GrammarNode> ParseClass() {
    const size_t begin = at_++;
    const bool negated = Take("^");
    if (Looks("]")) {
      return Error(begin, "the class has no member; \"\\]\" is a bracket");
    }
    std::vector<CodePointSet::Range> ranges;
    while (!Take("]")) {
      if (AtEnd()) return Error(begin, "the class is not closed by \"]\"");
      const size_t first_at = at_;
      ASSIGN_OR_RETURN(const char32_t first, ParseCharacter());
      char32_t last = first;
      if (Looks("-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        ASSIGN_OR_RETURN(last, ParseCharacter());
      }
      if (last < first) {
        return Error(first_at, "a range must be of two ascending characters, ",
                     "got ",
                     ShownInQuotes(text_.substr(first_at, at_ - first_at)));
      }
      RETURN_IF_ERROR(budget_.Take(kStepsOfRange));
      ranges.push_back({first, last});
    }
    CodePointSet set = CodePointSet::Of(std::move(ranges));
    return GrammarNode{.kind = Kind::kSet,
                       .set = negated ? set.Complement() : std::move(set)};
  }

  // Reads a character or an escape. REQUIRES: not at the end.
  absl::StatusOr<char32_t> ParseCharacter() {
    const size_t begin = at_;
    if (!Take("\\")) return TakeCodePoint();
    if (AtEnd()) return Error(begin, "nothing follows \"\\\"");
    const char c = text_[at_];
    if (IsPunctuation(c)) {
      ++at_;
      return c;
    }
    if (const auto control = ControlOfEscape(c)) {
      ++at_;
      return *control;
    }
    const int num_digits = NumHexDigits(c);
    if (num_digits == 0) {
      return Error(begin, "escape ", BytesInQuotes(text_.substr(begin, 2)),
                   " is not supported");
    }
    ++at_;
    return ParseHex(begin, num_digits);
  }

  absl::StatusOr<char32_t> ParseHex(size_t begin, int num_digits) {
    char32_t value = 0;
    for (int i = 0; i < num_digits; ++i, ++at_) {
      const char c = AtEnd() ? ' ' : text_[at_];
      const char lower = static_cast<char>(c | 0x20);
      if (!IsDigit(c) && !(lower >= 'a' && lower <= 'f')) {
        return Error(begin, "\"\\", text_[begin + 1], "\" must have ",
                     num_digits, " hex digits");
      }
      value = 16 * value + (IsDigit(c) ? c - '0' : lower - 'a' + 10);
    }
    if (value > CodePointSet::kLast || (value >= 0xD800 && value <= 0xDFFF)) {
      return Error(begin, BytesInQuotes(text_.substr(begin, at_ - begin)),
                   " is no code point");
    }
    return value;
  }

  // REQUIRES: the text is UTF-8 and not at its end.
  char32_t TakeCodePoint() {
    const auto byte = [&](size_t i) {
      return static_cast<char32_t>(static_cast<uint8_t>(text_[at_ + i]));
    };
    const char32_t first = byte(0);
    const int size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    char32_t c = size == 1 ? first : first & (0x7F >> size);
    for (int i = 1; i < size; ++i) c = c << 6 | (byte(i) & 0x3F);
    at_ += size;
    return c;
  }

  const std::string_view text_;
  CompileBudget& budget_;
  size_t at_ = 0;
  bool is_repeated_ = false;                         // the last element
  std::map<std::string, int, std::less<>> numbers_;  // the rules by name
  std::vector<Grammar::Rule> rules_;
  std::vector<bool> is_defined_;     // [rules]
  std::vector<size_t> first_named_;  // [rules]  a byte
};

}  // namespace

absl::StatusOr<Grammar> ParseGbnf(std::string_view text,
                                  CompileBudget* budget) {
  return GbnfParser(text, budget).Parse();
}

}  // namespace espalier
