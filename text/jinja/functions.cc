#include "text/jinja/functions.h"

#include <ctime>
#include <string>

#include "text/jinja/error.h"
#include "text/jinja/evaluator.h"

namespace espalier::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as jinja2's sandbox

Value Range(Evaluator& evaluator, const Arguments& arguments) {
  const ArgumentReader args("range", arguments, {"start", "stop", "step"}, 1);
  for (const Value& value : arguments.positional) {
    if (value.is(Kind::kUndefined)) throw TemplateError(value.why());
    if (!value.is_integer()) {
      Fail("range() needs integers, got ", TypeName(value));
    }
  }
  const bool has_stop = args.Has(1);
  const int64_t start = has_stop ? args.IntOr(0, 0) : 0;
  const int64_t stop = args.IntOr(has_stop ? 1 : 0, 0);
  const int64_t step = args.IntOr(2, 1);
  if (step == 0) Fail("range() needs a step that is not 0");
  bool is_input = false;
  for (size_t i = 0; i < 3; ++i) {
    is_input = is_input || (args.Has(i) && args[i].is_input());
  }
  auto range = std::make_shared<Sequence>();
  range->form = SequenceForm::kRange;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(range->items.size()) >= kMaxRange) {
      throw TemplateError::OutOf(
          Concat("range() gives more than ", kMaxRange, " numbers"));
    }
    if (range->items.size() % 4 == 0) evaluator.budget().TakeSteps(1);
    range->items.push_back(Value::Int(i).MarkedAs(is_input));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::Of(std::move(range));
}

Value MakeNamespace(Evaluator& evaluator, const Arguments& arguments) {
  auto attributes = std::make_shared<Namespace>();
  if (arguments.positional.size() > 1) {
    Fail("namespace() takes one argument without a name at most");
  }
  if (!arguments.positional.empty()) {
    const Value& values = arguments.positional[0];
    if (!values.is(Kind::kDict)) {
      Fail("namespace() needs a dict, got ", TypeName(values));
    }
    for (const auto& [key, value] : values.dict().items) {
      evaluator.budget().TakeSteps(1);
      if (!key.is(Kind::kString)) continue;
      evaluator.budget().TakeBytes(key.text().size());
      attributes->Set(key.bytes(), value);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    attributes->Set(name.bytes(), value);
  }
  evaluator.Keep(attributes);
  return Value::Of(std::move(attributes));
}

Value MakeDict(Evaluator& evaluator, const Arguments& arguments) {
  auto dict = std::make_shared<Dict>();
  if (arguments.positional.size() > 1) {
    Fail("dict() takes one argument without a name at most");
  }
  if (!arguments.positional.empty() &&
      arguments.positional[0].is(Kind::kDict)) {
    for (const auto& [key, value] : arguments.positional[0].dict().items) {
      evaluator.budget().TakeSteps(1);
      dict->Set(key, value, evaluator.budget());
    }
  } else if (!arguments.positional.empty()) {
    for (const Value& pair : evaluator.Iterate(arguments.positional[0])) {
      evaluator.budget().TakeSteps(1);
      const std::vector<Value> items = evaluator.Iterate(pair);
      if (items.size() != 2) Fail("dict() needs pairs of a key and a value");
      dict->Set(items[0], items[1], evaluator.budget());
    }
  }
  for (const auto& [name, value] : arguments.named) {
    dict->Set(Value::String(name), value);
  }
  return Value::Of(std::move(dict));
}

Value RaiseException(Evaluator& evaluator, const Arguments& arguments) {
  const ArgumentReader args("raise_exception", arguments, {"message"}, 1);
  throw TemplateError(evaluator.ToText(args[0]).bytes());
}

Value StrftimeNow(Evaluator& evaluator, const Arguments& arguments) {
  const ArgumentReader args("strftime_now", arguments, {"format"}, 1);
  if (!args[0].is(Kind::kString)) {
    Fail("strftime_now() needs a string, got ", TypeName(args[0]));
  }
  constexpr size_t kMaxFormat = 1000;  // bytes
  const std::string& format = args[0].bytes();
  if (format.size() > kMaxFormat) {
    Fail("strftime_now() takes a format of ", kMaxFormat, " bytes at most");
  }
  // A character more, so that an empty result is none that did not fit.
  const std::string with_end = format + "!";
  const std::tm time = absl::ToTM(evaluator.now(), absl::LocalTimeZone());
  std::string text(with_end.size() * 32 + 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), with_end.c_str(), &time));
  if (text.empty()) Fail("strftime_now() cannot write this format");
  text.pop_back();
  return Value::String(Text(std::move(text), args[0].text().has_input()));
}

}  // namespace

GlobalFunction FindFunction(std::string_view name) {
  if (name == "range") return Range;
  if (name == "namespace") return MakeNamespace;
  if (name == "dict") return MakeDict;
  if (name == "raise_exception") return RaiseException;
  if (name == "strftime_now") return StrftimeNow;
  return nullptr;
}

}  // namespace espalier::jinja
