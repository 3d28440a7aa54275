#include "text/jinja/format.h"

#include <algorithm>

#include "text/jinja/evaluator.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/number.h"
#include "text/jinja/printing.h"

namespace espalier::jinja {
namespace {

Value Converted(Value value, char conversion, Budget& budget) {
  switch (conversion) {
    case '\0':
      return value;
    case 's':
      return Value::String(ToText(value, budget));
    case 'r':
    case 'a':
      return Value::String(ReprText(value, conversion == 'a', budget));
    default:
      Fail("Unknown conversion specifier '", conversion, "'");
  }
}

// One str.format.
class BraceFormatter {
 public:
  BraceFormatter(Evaluator& evaluator, const Text& format,
                 const Arguments& arguments)
      : evaluator_(evaluator), format_(format), arguments_(arguments) {}

  Text Run();

 private:
  // The field that begins after `begin`; returns where its "}" is.
  size_t AddField(size_t begin);
  Value Find(std::string_view field);
  Value FindFirst(std::string_view name);

  Evaluator& evaluator_;
  const Text& format_;
  const Arguments& arguments_;
  size_t next_ = 0;  // next field without a name
  Text out_;
};

Text BraceFormatter::Run() {
  const std::string_view bytes = format_.bytes();
  evaluator_.budget().TakeBytes(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const char next = i + 1 < bytes.size() ? bytes[i + 1] : '\0';
    if ((c == '{' || c == '}') && next == c) {
      out_.AppendPart(format_, i++, 1);
    } else if (c == '{') {
      i = AddField(i + 1);
    } else if (c == '}') {
      Fail("Single '}' encountered in format string");
    } else {
      out_.AppendPart(format_, i, 1);
    }
  }
  return std::move(out_);
}

size_t BraceFormatter::AddField(size_t begin) {
  const std::string_view bytes = format_.bytes();
  const size_t end = bytes.find('}', begin);
  if (end == bytes.npos) Fail("expected '}' before end of string");
  std::string_view field = bytes.substr(begin, end - begin);
  if (field.find('{') != field.npos) {
    Fail("a field within a field is not supported");
  }
  std::string_view spec;
  const size_t colon = field.find(':');
  if (colon != field.npos) {
    spec = field.substr(colon + 1);
    field = field.substr(0, colon);
  }
  char conversion = '\0';
  if (field.size() >= 2 && field[field.size() - 2] == '!') {
    conversion = field.back();
    field.remove_suffix(2);
  }
  Budget& budget = evaluator_.budget();
  const Value value = Converted(Find(field), conversion, budget);
  out_.Append(MadeBy(format_.Part(begin, end + 1 - begin),
                     spec.empty()
                         ? ToText(value, budget)
                         : ApplyFormat(ReadFormatSpec(spec), value, budget)));
  return end;
}

Value BraceFormatter::FindFirst(std::string_view name) {
  size_t place = next_;
  if (name.empty()) {
    ++next_;
  } else if (const std::optional<int64_t> number = ReadInteger(name, 10)) {
    if (*number < 0) Fail("a field's number must not be negative");
    place = static_cast<size_t>(*number);
  } else {
    evaluator_.budget().TakeSteps(std::ssize(arguments_.named) / 8);
    for (const auto& [other, value] : arguments_.named) {
      if (other.bytes() == name) return value;
    }
    Fail("format() has no argument \"", name, "\"");
  }
  if (place >= arguments_.positional.size()) {
    Fail("format() has no argument ", place);
  }
  return arguments_.positional[place];
}

Value BraceFormatter::Find(std::string_view field) {
  size_t end = std::min(field.find_first_of(".["), field.size());
  Value value = FindFirst(field.substr(0, end));
  while (end < field.size()) {
    evaluator_.budget().TakeSteps(1);
    if (field[end] == '.') {
      const size_t begin = end + 1;
      end = std::min(field.find_first_of(".[", begin), field.size());
      value = evaluator_.Attribute(
          value, std::string(field.substr(begin, end - begin)));
      continue;
    }
    const size_t close = field.find(']', end);
    if (close == field.npos) Fail("Missing ']' in format string");
    const std::string key(field.substr(end + 1, close - end - 1));
    const std::optional<int64_t> number = ReadInteger(key, 10);
    value = evaluator_.Item(value,
                            number ? Value::Int(*number) : Value::String(key));
    end = close + 1;
  }
  return value;
}

}  // namespace

Text MadeBy(const Text& field, Text text) {
  return field.has_input() ? Text(text.bytes(), true) : std::move(text);
}

Text FormatBraces(Evaluator& evaluator, const Text& format,
                  const Arguments& arguments) {
  return BraceFormatter(evaluator, format, arguments).Run();
}

}  // namespace espalier::jinja
