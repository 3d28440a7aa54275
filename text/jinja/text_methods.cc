#include "text/jinja/text_methods.h"

#include <algorithm>

#include "text/jinja/evaluator.h"
#include "text/jinja/format.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

Value MadeOf(const Value& of, std::string bytes) {
  return Value::String(Text(std::move(bytes), of.text().has_input()));
}

Value ListOf(std::vector<Text> parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts) items.push_back(Value::String(std::move(part)));
  return Value::List(std::move(items));
}

// The argument, unless it is missing or none.
std::optional<std::string> OptionalString(Evaluator& evaluator,
                                          const ArgumentReader& args, size_t i,
                                          std::string_view function) {
  if (!args.Has(i) || args[i].is(Kind::kNone)) return std::nullopt;
  const Text& text = StringArgument(args[i], function);
  evaluator.budget().TakeBytes(text.size());
  return text.bytes();
}

template <bool kAtBegin, bool kAtEnd>
Value StripMethod(Evaluator& evaluator, const Value& object,
                  const Arguments& arguments) {
  constexpr std::string_view kName = kAtBegin && kAtEnd ? "strip"
                                     : kAtBegin         ? "lstrip"
                                                        : "rstrip";
  const ArgumentReader args(kName, arguments, {"chars"});
  evaluator.budget().TakeBytes(object.text().size());
  const std::optional<std::string> characters =
      OptionalString(evaluator, args, 0, kName);
  if (characters) evaluator.budget().TakeBytes(3 * characters->size());
  return Value::String(Strip(object.text(), characters, kAtBegin, kAtEnd));
}

template <bool kFromEnd>
Value SplitMethod(Evaluator& evaluator, const Value& object,
                  const Arguments& arguments) {
  constexpr std::string_view kName = kFromEnd ? "rsplit" : "split";
  const ArgumentReader args(kName, arguments, {"sep", "maxsplit"});
  return ListOf(Split(object.text(), OptionalString(evaluator, args, 0, kName),
                      args.IntOr(1, -1), kFromEnd, evaluator.budget()));
}

Value SplitLinesMethod(Evaluator& evaluator, const Value& object,
                       const Arguments& arguments) {
  const ArgumentReader args("splitlines", arguments, {"keepends"});
  return ListOf(
      SplitLines(object.text(), args.BoolOr(0, false), evaluator.budget()));
}

// The text from the character `start` to the character `end`, as slices have
// them, and the byte at which it begins.
std::pair<size_t, std::string_view> Within(const Value& object,
                                           const ArgumentReader& args,
                                           Evaluator& evaluator) {
  const std::string_view bytes = object.bytes();
  evaluator.budget().TakeBytes(bytes.size());
  if (!args.Has(1) && !args.Has(2)) return {0, bytes};
  const int64_t size = CountCharacters(bytes);
  // After the end there is not even an empty text, which is no data.
  if (args.IntOr(1, 0) > size) return {0, std::string_view()};
  const auto clamp = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  const int64_t begin = clamp(args.IntOr(1, 0));
  const int64_t end = std::max(begin, clamp(args.IntOr(2, size)));
  const size_t first = ByteOfCharacter(bytes, begin);
  return {first, bytes.substr(first, ByteOfCharacter(bytes, end) - first)};
}

template <bool kAtEnd>
Value StartsOrEndsWith(Evaluator& evaluator, const Value& object,
                       const Arguments& arguments) {
  constexpr std::string_view kName = kAtEnd ? "endswith" : "startswith";
  const ArgumentReader args(kName, arguments, {"affix", "start", "end"}, 1);
  const std::string_view text = Within(object, args, evaluator).second;
  const auto matches = [&](const Value& affix) {
    const std::string& bytes = StringArgument(affix, kName).bytes();
    evaluator.budget().TakeSteps(1);
    evaluator.budget().TakeBytes(bytes.size());
    if (text.data() == nullptr) return false;
    return kAtEnd ? text.ends_with(bytes) : text.starts_with(bytes);
  };
  const bool is_tuple = args[0].is(Kind::kSequence) &&
                        args[0].sequence().form == SequenceForm::kTuple;
  if (!is_tuple) return Value::Bool(matches(args[0]));
  return Value::Bool(std::ranges::any_of(args[0].sequence().items, matches));
}

Value ReplaceMethod(Evaluator& evaluator, const Value& object,
                    const Arguments& arguments) {
  const ArgumentReader args("replace", arguments, {"old", "new", "count"}, 2);
  return Value::String(Replace(object.text(),
                               StringArgument(args[0], "replace").bytes(),
                               StringArgument(args[1], "replace"),
                               args.IntOr(2, -1), evaluator.budget()));
}

template <std::string (*kFunction)(std::string_view)>
Value CaseMethod(Evaluator& evaluator, const Value& object,
                 const Arguments& arguments) {
  const ArgumentReader args("a method of case", arguments, {});
  evaluator.budget().TakeBytes(2 * object.text().size());
  return MadeOf(object, kFunction(object.bytes()));
}

// The index of the first or last occurrence, in characters; -1 if there is
// none.
template <bool kLast>
Value FindSubstring(Evaluator& evaluator, const Value& object,
                    const Arguments& arguments) {
  const ArgumentReader args(kLast ? "rfind" : "find", arguments,
                            {"sub", "start", "end"}, 1);
  const auto [begin, text] = Within(object, args, evaluator);
  const std::string& sub = StringArgument(args[0], "find").bytes();
  if (text.data() == nullptr) return Value::Int(-1);
  evaluator.budget().TakeBytes(sub.size());
  const size_t found =
      kLast ? LastFinder(sub).Find(text) : FindFirst(text, sub);
  if (found == text.npos) return Value::Int(-1);
  return Value::Int(CountCharacters(
      std::string_view(object.bytes()).substr(0, begin + found)));
}

template <bool kLast>
Value Index(Evaluator& evaluator, const Value& object,
            const Arguments& arguments) {
  const Value found = FindSubstring<kLast>(evaluator, object, arguments);
  if (found.integer() < 0) Fail("substring not found");
  return found;
}

Value CountMethod(Evaluator& evaluator, const Value& object,
                  const Arguments& arguments) {
  const ArgumentReader args("count", arguments, {"sub", "start", "end"}, 1);
  const std::string_view text = Within(object, args, evaluator).second;
  const std::string& sub = StringArgument(args[0], "count").bytes();
  if (text.data() == nullptr) return Value::Int(0);
  if (sub.empty()) return Value::Int(CountCharacters(text) + 1);
  int64_t count = 0;
  for (size_t i = FindFirst(text, sub); i != text.npos;
       i = FindFirst(text, sub, i + sub.size())) {
    ++count;
  }
  return Value::Int(count);
}

Value JoinMethod(Evaluator& evaluator, const Value& object,
                 const Arguments& arguments) {
  const ArgumentReader args("join", arguments, {"iterable"}, 1);
  Text joined;
  bool is_first = true;
  for (const Value& item : evaluator.Iterate(args[0])) {
    evaluator.budget().TakeSteps(1);
    const Text& text = StringArgument(item, "join");
    evaluator.budget().TakeBytes(text.size() + object.text().size());
    if (!std::exchange(is_first, false)) joined.Append(object.text());
    joined.Append(text);
  }
  return Value::String(std::move(joined));
}

Value FormatMethod(Evaluator& evaluator, const Value& object,
                   const Arguments& arguments) {
  return Value::String(
      FormatBraces(object.text(), arguments, evaluator.budget()));
}

Value RemovePrefix(Evaluator& evaluator, const Value& object,
                   const Arguments& arguments) {
  const ArgumentReader args("removeprefix", arguments, {"prefix"}, 1);
  const Text& text = object.text();
  evaluator.budget().TakeBytes(text.size());
  const size_t size = StringArgument(args[0], "removeprefix").size();
  if (!text.bytes().starts_with(args[0].bytes())) return object;
  return Value::String(text.Part(size, text.size() - size));
}

Value RemoveSuffix(Evaluator& evaluator, const Value& object,
                   const Arguments& arguments) {
  const ArgumentReader args("removesuffix", arguments, {"suffix"}, 1);
  const Text& text = object.text();
  evaluator.budget().TakeBytes(text.size());
  const size_t size = StringArgument(args[0], "removesuffix").size();
  if (!text.bytes().ends_with(args[0].bytes())) return object;
  return Value::String(text.Part(0, text.size() - size));
}

bool IsAsciiDigit(std::string_view c) {
  return c.size() == 1 && c[0] >= '0' && c[0] <= '9';
}
// Beyond ASCII, characters that have a case.
bool IsLetter(std::string_view c) {
  if (c.size() > 1) return IsCased(c);
  return (c[0] >= 'a' && c[0] <= 'z') || (c[0] >= 'A' && c[0] <= 'Z');
}
bool IsLetterOrDigit(std::string_view c) {
  return IsAsciiDigit(c) || IsLetter(c);
}
bool IsSpaceCharacter(std::string_view c) { return IsSpace(FirstCodePoint(c)); }

// True if kIs holds for all characters; false for an empty text.
template <bool (*kIs)(std::string_view)>
Value AllAre(Evaluator& evaluator, const Value& object,
             const Arguments& arguments) {
  const ArgumentReader args("a test of characters", arguments, {});
  const std::string_view text = object.bytes();
  evaluator.budget().TakeBytes(text.size());
  for (size_t i = 0; i < text.size(); i += CharacterSize(text[i])) {
    if (!kIs(text.substr(i, CharacterSize(text[i])))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

// True if there are cased characters, and all have this case.
template <bool kUpper>
Value HasCaseMethod(Evaluator& evaluator, const Value& object,
                    const Arguments& arguments) {
  const ArgumentReader args("a test of case", arguments, {});
  const std::string_view text = object.bytes();
  evaluator.budget().TakeBytes(text.size());
  bool has_cased = false;
  for (size_t i = 0; i < text.size(); i += CharacterSize(text[i])) {
    const std::string_view c = text.substr(i, CharacterSize(text[i]));
    if (!IsCased(c)) continue;
    if (IsUpperCharacter(c) != kUpper) return Value::Bool(false);
    has_cased = true;
  }
  return Value::Bool(has_cased);
}

template <bool kFromEnd>
Value Partition(Evaluator& evaluator, const Value& object,
                const Arguments& arguments) {
  const ArgumentReader args("partition", arguments, {"sep"}, 1);
  const Text& text = object.text();
  const Text& separator = StringArgument(args[0], "partition");
  if (separator.empty()) Fail("empty separator");
  evaluator.budget().TakeBytes(2 * text.size() + separator.size());
  const size_t at = kFromEnd ? LastFinder(separator.bytes()).Find(text.bytes())
                             : FindFirst(text.bytes(), separator.bytes());
  const Value empty = Value::String(Text());
  if (at == std::string::npos) {
    return kFromEnd ? Value::Tuple({empty, empty, object})
                    : Value::Tuple({object, empty, empty});
  }
  const size_t end = at + separator.size();
  return Value::Tuple({Value::String(text.Part(0, at)),
                       Value::String(text.Part(at, separator.size())),
                       Value::String(text.Part(end, text.size() - end))});
}

constexpr NamedMethod kTextMethods[] = {{"capitalize", CaseMethod<Capitalize>},
                                        {"count", CountMethod},
                                        {"endswith", StartsOrEndsWith<true>},
                                        {"find", FindSubstring<false>},
                                        {"format", FormatMethod},
                                        {"index", Index<false>},
                                        {"isalnum", AllAre<IsLetterOrDigit>},
                                        {"isalpha", AllAre<IsLetter>},
                                        {"isdecimal", AllAre<IsAsciiDigit>},
                                        {"isdigit", AllAre<IsAsciiDigit>},
                                        {"islower", HasCaseMethod<false>},
                                        {"isnumeric", AllAre<IsAsciiDigit>},
                                        {"isspace", AllAre<IsSpaceCharacter>},
                                        {"isupper", HasCaseMethod<true>},
                                        {"join", JoinMethod},
                                        {"lower", CaseMethod<ToLower>},
                                        {"lstrip", StripMethod<true, false>},
                                        {"partition", Partition<false>},
                                        {"removeprefix", RemovePrefix},
                                        {"removesuffix", RemoveSuffix},
                                        {"replace", ReplaceMethod},
                                        {"rfind", FindSubstring<true>},
                                        {"rindex", Index<true>},
                                        {"rpartition", Partition<true>},
                                        {"rsplit", SplitMethod<true>},
                                        {"rstrip", StripMethod<false, true>},
                                        {"split", SplitMethod<false>},
                                        {"splitlines", SplitLinesMethod},
                                        {"startswith", StartsOrEndsWith<false>},
                                        {"strip", StripMethod<true, true>},
                                        {"title", CaseMethod<Title>},
                                        {"upper", CaseMethod<ToUpper>}};

}  // namespace

std::span<const NamedMethod> TextMethods() { return kTextMethods; }

}  // namespace espalier::jinja
