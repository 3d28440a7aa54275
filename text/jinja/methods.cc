#include "text/jinja/methods.h"

#include <algorithm>
#include <span>

#include "text/jinja/evaluator.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_methods.h"

namespace espalier::jinja {
namespace {

Value MakeView(std::string_view name, std::vector<Value> items) {
  auto view = std::make_shared<Sequence>();
  view->form = SequenceForm::kView;
  view->name = name;
  view->items = std::move(items);
  return Value::Of(std::move(view));
}

const Dict& TakeDict(Evaluator& evaluator, const Value& object) {
  evaluator.budget().TakeSteps(
      static_cast<int64_t>(object.dict().items.size()) / 4);
  return object.dict();
}

Value Keys(Evaluator& evaluator, const Value& object,
           const Arguments& arguments) {
  const ArgumentReader args("keys", arguments, {});
  std::vector<Value> keys;
  for (const auto& item : TakeDict(evaluator, object).items) {
    keys.push_back(item.first);
  }
  return MakeView("dict_keys", std::move(keys));
}

Value Values(Evaluator& evaluator, const Value& object,
             const Arguments& arguments) {
  const ArgumentReader args("values", arguments, {});
  std::vector<Value> values;
  for (const auto& item : TakeDict(evaluator, object).items) {
    values.push_back(item.second);
  }
  return MakeView("dict_values", std::move(values));
}

Value DictItems(Evaluator& evaluator, const Value& object,
                const Arguments& arguments) {
  const ArgumentReader args("items", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : TakeDict(evaluator, object).items) {
    items.push_back(Value::Tuple({key, value}));
  }
  return MakeView("dict_items", std::move(items));
}

Value Get(Evaluator& evaluator, const Value& object,
          const Arguments& arguments) {
  const ArgumentReader args("get", arguments, {"key", "default"}, 1);
  evaluator.budget().TakeSteps(1);
  const Value* const value = object.dict().Find(args[0], evaluator.budget());
  if (value != nullptr) return *value;
  return args.Has(1) ? args[1] : Value::None();
}

Value Copy(Evaluator&, const Value& object, const Arguments& arguments) {
  const ArgumentReader args("copy", arguments, {});
  return object;  // it does not change
}

Value IndexOf(Evaluator& evaluator, const Value& object,
              const Arguments& arguments) {
  const ArgumentReader args("index", arguments, {"value"}, 1);
  const std::vector<Value>& items = object.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    evaluator.budget().TakeSteps(1);
    if (AreEqual(items[i], args[0], evaluator.budget())) {
      return Value::Int(static_cast<int64_t>(i));
    }
  }
  Fail("index() finds no such element");
}

Value CountOf(Evaluator& evaluator, const Value& object,
              const Arguments& arguments) {
  const ArgumentReader args("count", arguments, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : object.sequence().items) {
    evaluator.budget().TakeSteps(1);
    if (AreEqual(item, args[0], evaluator.budget())) ++count;
  }
  return Value::Int(count);
}

constexpr NamedMethod kDictMethods[] = {{"copy", Copy},
                                        {"get", Get},
                                        {"items", DictItems},
                                        {"keys", Keys},
                                        {"values", Values}};
constexpr NamedMethod kListMethods[] = {
    {"copy", Copy}, {"count", CountOf}, {"index", IndexOf}};

// Methods that would change a value.
constexpr std::string_view kRefusedOfDicts[] = {"clear", "pop", "popitem",
                                                "setdefault", "update"};
constexpr std::string_view kRefusedOfLists[] = {
    "append", "clear", "extend", "insert", "pop", "reverse", "remove", "sort"};

// Methods of Python's str that are left out.
constexpr std::string_view kUnsupportedOfStrings[] = {
    "casefold",  "center",       "encode",      "expandtabs", "format_map",
    "isascii",   "isidentifier", "isprintable", "istitle",    "ljust",
    "maketrans", "rjust",        "swapcase",    "translate",  "zfill"};

Method FindIn(std::span<const NamedMethod> methods, std::string_view name) {
  const auto found = std::ranges::find(methods, name, &NamedMethod::name);
  return found == methods.end() ? nullptr : found->method;
}

bool HasMethods(const Value& object) {
  if (!object.is(Kind::kSequence)) return false;
  const SequenceForm form = object.sequence().form;
  return form == SequenceForm::kList || form == SequenceForm::kTuple ||
         form == SequenceForm::kRange;
}

}  // namespace

Method FindMethod(const Value& object, std::string_view name) {
  if (object.is(Kind::kString)) return FindIn(TextMethods(), name);
  if (object.is(Kind::kDict)) return FindIn(kDictMethods, name);
  if (!HasMethods(object)) return nullptr;
  const bool is_list = object.sequence().form == SequenceForm::kList;
  if (name == "copy" && !is_list) return nullptr;
  return FindIn(kListMethods, name);
}

bool IsUnsupportedMethod(const Value& object, std::string_view name) {
  return object.is(Kind::kString) &&
         std::ranges::count(kUnsupportedOfStrings, name) > 0;
}

bool IsRefusedMethod(const Value& object, std::string_view name) {
  if (object.is(Kind::kDict)) {
    return std::ranges::count(kRefusedOfDicts, name) > 0;
  }
  return object.is(Kind::kSequence) &&
         object.sequence().form == SequenceForm::kList &&
         std::ranges::count(kRefusedOfLists, name) > 0;
}

}  // namespace espalier::jinja
