#include "text/jinja/text_filters.h"

#include <algorithm>

#include "text/jinja/evaluator.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

// The value as a string, with the cost of reading it.
Text TextOf(Evaluator& evaluator, const Value& value) {
  return evaluator.ToText(value);
}

// A string made as a whole: an input if what it is made of has one.
Value Made(const Text& of, std::string bytes) {
  return Value::String(Text(std::move(bytes), of.has_input()));
}

Value Upper(Evaluator& evaluator, const Value& value,
            const Arguments& arguments) {
  const ArgumentReader args("upper", arguments, {});
  const Text text = TextOf(evaluator, value);
  return Made(text, ToUpper(text.bytes()));
}

Value Lower(Evaluator& evaluator, const Value& value,
            const Arguments& arguments) {
  const ArgumentReader args("lower", arguments, {});
  const Text text = TextOf(evaluator, value);
  return Made(text, ToLower(text.bytes()));
}

Value CapitalizeFilter(Evaluator& evaluator, const Value& value,
                       const Arguments& arguments) {
  const ArgumentReader args("capitalize", arguments, {});
  const Text text = TextOf(evaluator, value);
  return Made(text, Capitalize(text.bytes()));
}

// Unlike str.title() a word begins after white space and "-({[<" alone.
Value TitleFilter(Evaluator& evaluator, const Value& value,
                  const Arguments& arguments) {
  const ArgumentReader args("title", arguments, {});
  const Text text = TextOf(evaluator, value);
  std::string title;
  bool begins_word = true;
  const std::string_view bytes = text.bytes();
  for (size_t i = 0; i < bytes.size(); i += CharacterSize(bytes[i])) {
    const std::string_view character = bytes.substr(i, CharacterSize(bytes[i]));
    title += begins_word ? ToUpper(character) : ToLower(character);
    begins_word =
        IsSpace(FirstCodePoint(character)) ||
        std::string_view("-({[<").find(character) != std::string_view::npos;
  }
  return Made(text, std::move(title));
}

Value Trim(Evaluator& evaluator, const Value& value,
           const Arguments& arguments) {
  const ArgumentReader args("trim", arguments, {"chars"});
  const Text text = TextOf(evaluator, value);
  std::optional<std::string> characters;
  if (args.Has(0) && !args[0].is(Kind::kNone)) {
    if (!args[0].is(Kind::kString)) Fail("trim() needs a string of characters");
    evaluator.budget().TakeBytes(4 * args[0].text().size());
    characters = args[0].bytes();
  }
  Text trimmed = Strip(text, characters, true, true);
  return value.is(Kind::kString) && value.is_markup()
             ? Value::Markup(std::move(trimmed))
             : Value::String(std::move(trimmed));
}

Value ReplaceFilter(Evaluator& evaluator, const Value& value,
                    const Arguments& arguments) {
  const ArgumentReader args("replace", arguments, {"old", "new", "count"}, 2);
  const Text text = TextOf(evaluator, value);
  return Value::String(Replace(text, evaluator.ToText(args[0]).bytes(),
                               evaluator.ToText(args[1]), args.IntOr(2, -1),
                               evaluator.budget()));
}

Value Indent(Evaluator& evaluator, const Value& value,
             const Arguments& arguments) {
  const ArgumentReader args("indent", arguments, {"width", "first", "blank"});
  if (!value.is(Kind::kString)) {
    Fail("indent() needs a string, got ", TypeName(value));
  }
  Budget& budget = evaluator.budget();
  Text indention;
  if (args.Has(0) && args[0].is(Kind::kString)) {
    budget.TakeBytes(args[0].text().size());
    indention = args[0].text();
  } else {
    const int64_t width = std::max<int64_t>(args.IntOr(0, 4), 0);
    budget.TakeBytes(static_cast<size_t>(width));
    indention = Text(std::string(static_cast<size_t>(width), ' '));
  }
  const std::vector<Text> lines = SplitLines(value.text(), false, budget);
  const bool ends_in_line =
      !value.text().empty() && EndsInLineBreak(value.bytes());
  Text result;
  const size_t num_lines =
      lines.size() + (ends_in_line || lines.empty() ? 1 : 0);
  for (size_t i = 0; i < num_lines; ++i) {
    const Text line = i < lines.size() ? lines[i] : Text();
    if (i > 0) result.Append("\n", value.text().has_input());
    const bool indents = (i > 0 || args.BoolOr(1, false)) &&
                         (!line.empty() || args.BoolOr(2, false) || i == 0);
    if (indents) {
      budget.TakeBytes(indention.size());
      result.Append(indention);
    }
    result.Append(line);
  }
  return Value::String(std::move(result));
}

Value Escape(Evaluator& evaluator, const Value& value,
             const Arguments& arguments) {
  const ArgumentReader args("escape", arguments, {});
  const Value text =
      value.is(Kind::kString) ? value : Value::String(TextOf(evaluator, value));
  return Value::Markup(EscapeHtml(text, evaluator.budget()));
}

Value Safe(Evaluator& evaluator, const Value& value,
           const Arguments& arguments) {
  const ArgumentReader args("safe", arguments, {});
  return Value::Markup(TextOf(evaluator, value));
}

Value Format(Evaluator& evaluator, const Value& value,
             const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    Fail("format() takes arguments by place or by name, not both");
  }
  const Text text = TextOf(evaluator, value);
  Value values = Value::Tuple(arguments.positional);
  if (!arguments.named.empty()) {
    auto dict = std::make_shared<Dict>();
    for (const auto& [name, argument] : arguments.named) {
      dict->Set(Value::String(name), argument);
    }
    values = Value::Of(std::move(dict));
  }
  return Value::String(FormatPercent(text, values, evaluator.budget()));
}

constexpr NamedFilter kTextFilters[] = {{"capitalize", CapitalizeFilter},
                                        {"e", Escape},
                                        {"escape", Escape},
                                        {"format", Format},
                                        {"indent", Indent},
                                        {"lower", Lower},
                                        {"replace", ReplaceFilter},
                                        {"safe", Safe},
                                        {"title", TitleFilter},
                                        {"trim", Trim},
                                        {"upper", Upper}};

}  // namespace

std::span<const NamedFilter> TextFilters() { return kTextFilters; }

}  // namespace espalier::jinja
