#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "text/jinja/string_literal.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool BeginsName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool ContinuesName(char c) { return BeginsName(c) || IsDigit(c); }

// Longer ones first.
constexpr std::string_view kOperators[] = {
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "(",
    ")",  "[",  "]",  "{",  "}",  "=",  ">", "<", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run();

 private:
  enum class Tag { kVariable, kBlock, kComment };

  char At(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  std::string_view Rest() const {
    return std::string_view(source_).substr(position_);
  }
  bool StartsWith(std::string_view text) const {
    return Rest().starts_with(text);
  }
  Position Here() const;
  [[noreturn]] void FailHere(const std::string& message) const {
    throw TemplateError(Here(), message);
  }
  // Goes to `end`.
  void Advance(size_t end);
  void Add(TokenKind kind, std::string text, Position at) {
    tokens_.push_back({kind, std::move(text), at});
  }

  size_t FindTag(size_t from) const;
  // The data up to a tag at `end`, and the tag's beginning.
  void ReadData();
  // Returns the data before a tag, after white space control.
  std::string_view StripBefore(std::string_view data, Tag tag, char sign) const;
  void SkipSpaces() { Advance(position_ + LeadingSpace(Rest())); }
  void SkipLineEnd() {
    if (At(position_) == '\n') Advance(position_ + 1);
  }
  void ReadComment();
  // Reads a raw block and returns true if one begins here.
  bool ReadRaw();
  void ReadTag(TokenKind end_kind);
  bool ReadTagEnd(TokenKind end_kind);
  void ReadToken();
  // The end of 0x1F, 0o17 or 0b11; where the text is, if there is none.
  size_t PrefixedNumberEnd() const;
  void ReadNumber();
  void ReadName();
  void ReadString();
  void ReadOperator();

  const std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  size_t line_begin_ = 0;
  // True if the text read so far ends in a line end. White space at this point
  // begins a line, as jinja2 defines it.
  bool begins_line_ = true;
  std::string brackets_;  // that are open
  std::vector<Token> tokens_;
};

Position Lexer::Here() const {
  return {line_, static_cast<int>(position_ - line_begin_) + 1};
}

void Lexer::Advance(size_t end) {
  for (; position_ < end; ++position_) {
    if (source_[position_] == '\n') {
      ++line_;
      line_begin_ = position_ + 1;
    }
  }
}

std::vector<Token> Lexer::Run() {
  while (position_ < source_.size()) ReadData();
  Add(TokenKind::kEnd, "", Here());
  return std::move(tokens_);
}

size_t Lexer::FindTag(size_t from) const {
  for (size_t i = source_.find('{', from); i != std::string::npos;
       i = source_.find('{', i + 1)) {
    const char next = At(i + 1);
    if (next == '{' || next == '%' || next == '#') return i;
  }
  return source_.size();
}

std::string_view Lexer::StripBefore(std::string_view data, Tag tag,
                                    char sign) const {
  if (sign == '-') return data.substr(0, data.size() - TrailingSpace(data));
  if (sign == '+' || tag == Tag::kVariable) return data;
  const size_t line_end = data.rfind('\n');
  const size_t line = line_end == data.npos ? 0 : line_end + 1;
  if (line == 0 && !begins_line_) return data;
  const std::string_view last_line = data.substr(line);
  const bool is_blank = LeadingSpace(last_line) == last_line.size();
  return is_blank ? data.substr(0, line) : data;
}

void Lexer::ReadData() {
  const size_t begin = position_;
  const Position at = Here();
  const size_t end = FindTag(position_);
  std::string_view data = std::string_view(source_).substr(begin, end - begin);
  if (end == source_.size()) {
    Add(TokenKind::kData, std::string(data), at);
    Advance(end);
    return;
  }
  const Tag tag = At(end + 1) == '{'   ? Tag::kVariable
                  : At(end + 1) == '%' ? Tag::kBlock
                                       : Tag::kComment;
  char sign = At(end + 2);
  // A variable's "+" is an operator.
  if (sign != '-' && (sign != '+' || tag == Tag::kVariable)) sign = '\0';
  data = StripBefore(data, tag, sign);
  if (!data.empty()) Add(TokenKind::kData, std::string(data), at);
  Advance(end);
  if (tag == Tag::kComment) {
    ReadComment();
    return;
  }
  if (tag == Tag::kBlock && ReadRaw()) return;
  Add(tag == Tag::kBlock ? TokenKind::kBlockBegin : TokenKind::kVariableBegin,
      "", Here());
  Advance(end + (sign == '\0' ? 2 : 3));
  ReadTag(tag == Tag::kBlock ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
}

void Lexer::ReadComment() {
  const size_t end = source_.find("#}", position_ + 2);
  if (end == std::string::npos) FailHere("a comment has no end \"#}\"");
  const char sign = end > position_ + 2 ? source_[end - 1] : '\0';
  Advance(end + 2);
  begins_line_ = false;
  const size_t after = position_;
  if (sign == '-') SkipSpaces();
  if (sign != '-' && sign != '+') SkipLineEnd();
  if (position_ > after) begins_line_ = source_[position_ - 1] == '\n';
}

bool Lexer::ReadRaw() {
  const auto word_after = [&](size_t from, std::string_view word) {
    if (At(from) == '-' || At(from) == '+') ++from;
    const std::string_view rest =
        std::string_view(source_).substr(std::min(from, source_.size()));
    from += LeadingSpace(rest);
    if (!std::string_view(source_)
             .substr(std::min(from, source_.size()))
             .starts_with(word)) {
      return std::string::npos;
    }
    from += word.size();
    from += LeadingSpace(std::string_view(source_).substr(from));
    return from;
  };
  size_t content = word_after(position_ + 2, "raw");
  if (content == std::string::npos) return false;
  const bool strips = At(content) == '-';
  if (strips) ++content;
  if (At(content) != '%' || At(content + 1) != '}') return false;
  const Position at = Here();
  const size_t begin = content + 2;
  for (size_t tag = source_.find("{%", begin); tag != std::string::npos;
       tag = source_.find("{%", tag + 1)) {
    size_t end = word_after(tag + 2, "endraw");
    if (end == std::string::npos) continue;
    const char end_sign = At(end);
    if (end_sign == '-' || end_sign == '+') ++end;
    if (At(end) != '%' || At(end + 1) != '}') continue;
    std::string_view data =
        std::string_view(source_).substr(begin, tag - begin);
    if (strips) data.remove_prefix(LeadingSpace(data));
    begins_line_ = strips && begin != tag && source_[begin] == '\n';
    const char sign = At(tag + 2);
    data = StripBefore(data, Tag::kBlock,
                       sign == '-' || sign == '+' ? sign : '\0');
    if (!data.empty()) Add(TokenKind::kData, std::string(data), at);
    Advance(end + 2);
    if (end_sign == '-') SkipSpaces();
    if (end_sign != '-' && end_sign != '+') SkipLineEnd();
    begins_line_ = source_[position_ - 1] == '\n';
    return true;
  }
  throw TemplateError(at, "a raw block has no end: {% endraw %}");
}

void Lexer::ReadTag(TokenKind end_kind) {
  const Position begin = tokens_.back().at;
  brackets_.clear();
  while (true) {
    SkipSpaces();
    if (position_ >= source_.size()) {
      throw TemplateError(begin, end_kind == TokenKind::kBlockEnd
                                     ? "a block has no end \"%}\""
                                     : "an expression has no end \"}}\"");
    }
    if (brackets_.empty() && ReadTagEnd(end_kind)) return;
    ReadToken();
  }
}

bool Lexer::ReadTagEnd(TokenKind end_kind) {
  const bool is_block = end_kind == TokenKind::kBlockEnd;
  const std::string_view end = is_block ? "%}" : "}}";
  const char sign = At(position_);
  const bool has_sign = sign == '-' || (sign == '+' && is_block);
  if (!Rest().substr(has_sign ? 1 : 0).starts_with(end)) return false;
  Add(end_kind, "", Here());
  Advance(position_ + (has_sign ? 3 : 2));
  if (has_sign && sign == '-') SkipSpaces();
  if (!has_sign && is_block) SkipLineEnd();
  begins_line_ = source_[position_ - 1] == '\n';
  return true;
}

void Lexer::ReadToken() {
  const char c = At(position_);
  if (IsDigit(c)) return ReadNumber();
  if (BeginsName(c)) return ReadName();
  if (c == '"' || c == '\'') return ReadString();
  ReadOperator();
}

// Limits names, because an operation on a name counts as one step, whatever its
// length.
constexpr size_t kMostBytesOfName = 1'000;

void Lexer::ReadName() {
  size_t end = position_;
  while (ContinuesName(At(end))) ++end;
  if (end - position_ > kMostBytesOfName) {
    FailHere(Concat("a name has more than ", kMostBytesOfName, " bytes"));
  }
  Add(TokenKind::kName, source_.substr(position_, end - position_), Here());
  Advance(end);
}

size_t Lexer::PrefixedNumberEnd() const {
  const char base = At(position_ + 1) | 0x20;
  const std::string_view digits = base == 'x'   ? "0123456789abcdefABCDEF"
                                  : base == 'o' ? "01234567"
                                  : base == 'b' ? "01"
                                                : "";
  size_t end = position_;
  if (At(position_) != '0' || digits.empty()) return end;
  for (size_t i = position_ + 2; At(i) != '\0'; ++i) {
    if (digits.find(At(i)) != digits.npos) {
      end = i + 1;
    } else if (At(i) != '_') {
      break;
    }
  }
  return end;
}

void Lexer::ReadNumber() {
  const auto skip_digits = [&](size_t i) {
    while (IsDigit(At(i)) || (At(i) == '_' && IsDigit(At(i + 1)))) ++i;
    return i;
  };
  if (const size_t end = PrefixedNumberEnd(); end > position_) {
    std::string number = source_.substr(position_, end - position_);
    std::erase(number, '_');
    Add(TokenKind::kInteger, std::move(number), Here());
    Advance(end);
    return;
  }
  const bool follows_dot = position_ > 0 && source_[position_ - 1] == '.';
  size_t end = skip_digits(position_);
  TokenKind kind = TokenKind::kInteger;
  if (!follows_dot) {
    if (At(end) == '.' && IsDigit(At(end + 1))) {
      end = skip_digits(end + 1);
      kind = TokenKind::kFloat;
    }
    if (At(end) == 'e' || At(end) == 'E') {
      const bool has_sign = At(end + 1) == '+' || At(end + 1) == '-';
      const size_t digits = end + (has_sign ? 2 : 1);
      if (IsDigit(At(digits))) {
        end = skip_digits(digits);
        kind = TokenKind::kFloat;
      }
    }
  }
  std::string text = source_.substr(position_, end - position_);
  std::erase(text, '_');
  Add(kind, std::move(text), Here());
  Advance(end);
}

void Lexer::ReadString() {
  const Position at = Here();
  const char quote = source_[position_];
  size_t end = position_ + 1;
  while (end < source_.size() && source_[end] != quote) {
    end += source_[end] == '\\' ? 2 : 1;
  }
  if (end >= source_.size()) FailHere("a string has no end");
  const std::string_view literal =
      std::string_view(source_).substr(position_ + 1, end - position_ - 1);
  std::optional<std::string> text = ReadStringLiteral(literal);
  if (!text) FailHere("a string has an escape that says no character");
  Add(TokenKind::kString, *std::move(text), at);
  Advance(end + 1);
}

void Lexer::ReadOperator() {
  const auto found = std::ranges::find_if(
      kOperators, [&](std::string_view text) { return StartsWith(text); });
  if (found == std::end(kOperators)) {
    FailHere(Concat("unexpected character \"",
                    Rest().substr(0, CharacterSize(At(position_))), "\""));
  }
  const std::string_view text = *found;
  if (text == "(" || text == "[" || text == "{") brackets_ += text[0];
  if (text == ")" || text == "]" || text == "}") {
    const char open = text == ")" ? '(' : text == "]" ? '[' : '{';
    if (brackets_.empty() || brackets_.back() != open) {
      FailHere(Concat("unexpected \"", text, "\""));
    }
    brackets_.pop_back();
  }
  Add(TokenKind::kOperator, std::string(text), Here());
  Advance(position_ + text.size());
}

// "\r\n" and "\r" as "\n", and without one line end at the end.
std::string NormalizeLineEnds(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// 60 bytes at most, of whole characters.
std::string_view Beginning(std::string_view text) {
  constexpr size_t kMostBytes = 60;
  if (text.size() <= kMostBytes) return text;
  size_t size = kMostBytes;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) {
    --size;
  }
  return text.substr(0, size);
}

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(NormalizeLineEnds(source)).Run();
}

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kBlockEnd:
      return "\"%}\"";
    case TokenKind::kVariableEnd:
      return "\"}}\"";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kData:
      return "text";
    default:
      return Concat("\"", Beginning(token.text), "\"");
  }
}

}  // namespace espalier::jinja
