#include "text/jinja/printing.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

// A part of a text that is a value's, for errors and reprs of what has none.
std::string ReprOfItems(const std::vector<Value>& items, Budget& budget,
                        bool* has_input) {
  std::string text;
  for (const Value& item : items) {
    if (!text.empty()) text += ", ";
    text += Repr(item, budget, has_input);
  }
  return text;
}

std::string ReprOfRange(const Sequence& range) {
  const auto& items = range.items;
  if (items.empty()) return "range(0, 0)";
  const int64_t first = items[0].integer();
  const int64_t step = items.size() > 1 ? items[1].integer() - first : 1;
  int64_t end = 0;
  if (__builtin_add_overflow(items.back().integer(), step, &end)) {
    end = step < 0 ? std::numeric_limits<int64_t>::min()
                   : std::numeric_limits<int64_t>::max();
  }
  return step == 1 ? Concat("range(", first, ", ", end, ")")
                   : Concat("range(", first, ", ", end, ", ", step, ")");
}

std::string ReprOfSequence(const Sequence& sequence, Budget& budget,
                           bool* has_input) {
  if (sequence.form == SequenceForm::kRange) {
    *has_input =
        *has_input || (!sequence.items.empty() && sequence.items[0].is_input());
    return ReprOfRange(sequence);
  }
  if (sequence.form == SequenceForm::kGenerator) {
    return Concat("<generator object ", sequence.name, ">");
  }
  const std::string items = ReprOfItems(sequence.items, budget, has_input);
  if (sequence.form == SequenceForm::kTuple) {
    return "(" + items + (sequence.items.size() == 1 ? ",)" : ")");
  }
  if (sequence.form == SequenceForm::kView) {
    return Concat(sequence.name, "([", items, "])");
  }
  return "[" + items + "]";
}

std::string ReprOfDict(const Dict& dict, Budget& budget, bool* has_input) {
  std::string text = "{";
  for (const auto& [key, value] : dict.items) {
    if (text.size() > 1) text += ", ";
    text += Repr(key, budget, has_input);
    text += ": ";
    text += Repr(value, budget, has_input);
  }
  return text + "}";
}

// Returns the repr() of a value that is neither a container nor a string.
std::string ReprOfScalar(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.boolean() ? "True" : "False";
    case Kind::kInt:
      return std::to_string(value.integer());
    case Kind::kFloat:
      return FormatFloat(value.number());
    case Kind::kFunction:
      return Concat("<function ", value.function().name, ">");
    default:
      return Concat("<", TypeName(value), ">");
  }
}

std::string EscapeOfCharacter(uint32_t code_point) {
  if (code_point < 0x100) return absl::StrFormat("\\x%02x", code_point);
  if (code_point < 0x10000) return absl::StrFormat("\\u%04x", code_point);
  return absl::StrFormat("\\U%08x", code_point);
}

}  // namespace

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  std::array<char, 400> buffer;
  const double magnitude = std::fabs(value);
  // The shortest digits; Python chooses the form by the exponent.
  auto end = std::to_chars(buffer.begin(), buffer.end(), magnitude,
                           std::chars_format::scientific);
  std::string text(buffer.begin(), end.ptr);
  const int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent >= -4 && exponent < 16) {
    end = std::to_chars(buffer.begin(), buffer.end(), magnitude,
                        std::chars_format::fixed);
    text.assign(buffer.begin(), end.ptr);
    if (text.find('.') == std::string::npos) text += ".0";
  }
  return value < 0 ? "-" + text : text;
}

std::string ReprOfString(std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  const bool has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string repr(1, quote);
  for (size_t i = 0; i < text.size(); i += CharacterSize(text[i])) {
    const uint32_t code_point = FirstCodePoint(text.substr(i));
    const char byte = text[i];
    if (byte == quote || byte == '\\') {
      repr += '\\';
      repr += byte;
    } else if (byte == '\n') {
      repr += "\\n";
    } else if (byte == '\r') {
      repr += "\\r";
    } else if (byte == '\t') {
      repr += "\\t";
    } else if (IsPrintable(code_point)) {
      repr += text.substr(i, CharacterSize(byte));
    } else {
      repr += EscapeOfCharacter(code_point);
    }
  }
  return repr + quote;
}

std::string Repr(const Value& value, Budget& budget, bool* has_input) {
  budget.TakeSteps(1);
  std::string text;
  if (value.is(Kind::kString)) {
    *has_input = *has_input || value.text().has_input();
    text = ReprOfString(value.bytes());
  } else if (value.is(Kind::kSequence)) {
    text = ReprOfSequence(value.sequence(), budget, has_input);
  } else if (value.is(Kind::kDict)) {
    text = ReprOfDict(value.dict(), budget, has_input);
  } else {
    *has_input = *has_input || value.is_input();
    text = ReprOfScalar(value);
  }
  budget.TakeBytes(text.size());
  return text;
}

Text ReprText(const Value& value, Budget& budget) {
  bool has_input = false;
  const std::string repr = Repr(value, budget, &has_input);
  return Text(repr, has_input);
}

Text ToText(const Value& value, Budget& budget) {
  if (value.is(Kind::kString)) return value.text();
  if (value.is(Kind::kUndefined)) return Text();
  bool has_input = false;
  std::string text = Repr(value, budget, &has_input);
  return Text(std::move(text), has_input);
}

}  // namespace espalier::jinja
