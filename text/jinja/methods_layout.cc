// Methods of strings that pad them to a width.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

// `fill`, which is one character, `times` times.
Text Padding(Evaluator& evaluator, const Text& fill, int64_t times) {
  Text padding;
  if (times <= 0) return padding;
  // The first so that the second does not overflow.
  evaluator.budget().TakeBytes(static_cast<size_t>(times));
  evaluator.budget().TakeBytes(static_cast<size_t>(times) * fill.size());
  for (int64_t i = 0; i < times; ++i) padding.Append(fill);
  return padding;
}

// Returns the number of characters that `object` lacks to reach `width`.
int64_t Missing(Evaluator& evaluator, const Value& object, int64_t width) {
  evaluator.budget().TakeBytes(object.text().size());
  return std::max<int64_t>(width, 0) - CountCharacters(object.bytes());
}

enum class Side { kLeft, kRight, kCenter };

// Characters to the left of the text, of those that are missing.
int64_t MissingBefore(Side side, int64_t missing, int64_t width) {
  if (side == Side::kLeft || missing <= 0) return 0;
  if (side == Side::kRight) return missing;
  // If `missing` is odd, the width's parity decides the extra one, as in
  // Python.
  return missing / 2 + (missing & width & 1);
}

template <Side kSide>
Value Justify(Evaluator& evaluator, const Value& object,
              const Arguments& arguments) {
  constexpr std::string_view kName = kSide == Side::kLeft    ? "ljust"
                                     : kSide == Side::kRight ? "rjust"
                                                             : "center";
  const ArgumentReader args(kName, arguments, {"width", "fillchar"}, 1);
  const Text fill = args.Has(1) ? StringArgument(args[1], kName) : Text(" ");
  evaluator.budget().TakeBytes(fill.size());
  if (CountCharacters(fill.bytes()) != 1) {
    Fail("the fill character must be one character");
  }
  const int64_t width = args.IntOr(0, 0);
  const int64_t missing = Missing(evaluator, object, width);
  const int64_t before = MissingBefore(kSide, missing, width);
  Text text = Padding(evaluator, fill, before);
  text.Append(object.text());
  text.Append(Padding(evaluator, fill, missing - before));
  return Value::String(std::move(text));
}

Value ZeroFill(Evaluator& evaluator, const Value& object,
               const Arguments& arguments) {
  const ArgumentReader args("zfill", arguments, {"width"}, 1);
  const Text& text = object.text();
  const int64_t missing = Missing(evaluator, object, args.IntOr(0, 0));
  const bool has_sign =
      text.bytes().starts_with('+') || text.bytes().starts_with('-');
  const size_t sign_bytes = has_sign ? 1 : 0;
  Text filled = text.Part(0, sign_bytes);
  filled.Append(Padding(evaluator, Text("0"), missing));
  filled.AppendPart(text, sign_bytes, text.size() - sign_bytes);
  return Value::String(std::move(filled));
}

// Spaces in place of a tab are of what the tab is of.
Value ExpandTabs(Evaluator& evaluator, const Value& object,
                 const Arguments& arguments) {
  const ArgumentReader args("expandtabs", arguments, {"tabsize"});
  const int64_t tab_size = args.IntOr(0, 8);
  const Text& text = object.text();
  evaluator.budget().TakeBytes(text.size());
  Text expanded;
  int64_t column = 0;
  for (const Text::Run& run : text.Runs()) {
    for (size_t i = run.begin; i < run.end;) {
      const char byte = text.bytes()[i];
      const size_t size = CharacterSize(byte);
      if (byte == '\t') {
        const int64_t spaces =
            tab_size > 0 ? tab_size - column % tab_size : int64_t{0};
        expanded.Append(Padding(evaluator, Text(" ", run.is_input), spaces));
        column += spaces;
      } else {
        expanded.AppendPart(text, i, size);
        column = byte == '\n' || byte == '\r' ? 0 : column + 1;
      }
      i += size;
    }
  }
  return Value::String(std::move(expanded));
}

constexpr NamedMethod kLayoutMethods[] = {{"center", Justify<Side::kCenter>},
                                          {"expandtabs", ExpandTabs},
                                          {"ljust", Justify<Side::kLeft>},
                                          {"rjust", Justify<Side::kRight>},
                                          {"zfill", ZeroFill}};

}  // namespace

Method FindLayoutMethod(std::string_view name) {
  const auto found =
      std::ranges::find(kLayoutMethods, name, &NamedMethod::name);
  return found == std::end(kLayoutMethods) ? nullptr : found->method;
}

}  // namespace espalier::jinja
