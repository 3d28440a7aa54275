#include "text/jinja/sequence_filters.h"

#include <algorithm>

#include "text/jinja/attribute_path.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/generator.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

Value Length(Evaluator& evaluator, const Value& value,
             const Arguments& arguments) {
  const ArgumentReader args("length", arguments, {});
  switch (value.kind()) {
    case Kind::kUndefined:
      return Value::Int(0);
    case Kind::kString:
      evaluator.budget().TakeBytes(value.text().size());
      return Value::Int(CountCharacters(value.bytes()));
    case Kind::kDict:
      return Value::Int(static_cast<int64_t>(value.dict().items.size()));
    case Kind::kSequence:
      if (value.sequence().form != SequenceForm::kGenerator) {
        return Value::Int(static_cast<int64_t>(value.sequence().items.size()));
      }
      [[fallthrough]];
    default:
      Fail("object of type '", TypeName(value), "' has no length");
  }
}

Value JoinFilter(Evaluator& evaluator, const Value& value,
                 const Arguments& arguments) {
  const ArgumentReader args("join", arguments, {"d", "attribute"});
  const Text separator = args.Has(0) ? evaluator.ToText(args[0]) : Text();
  const AttributePath path = args.Has(1)
                                 ? AttributePath(args[1], evaluator.budget())
                                 : AttributePath();
  Text joined;
  bool is_first = true;
  for (const Value& item : evaluator.Iterate(value)) {
    evaluator.budget().TakeSteps(1);
    const Text text = evaluator.ToText(path.Get(evaluator, item));
    evaluator.budget().TakeBytes(text.size() + separator.size());
    if (!std::exchange(is_first, false)) joined.Append(separator);
    joined.Append(text);
  }
  return Value::String(std::move(joined));
}

Value First(Evaluator& evaluator, const Value& value,
            const Arguments& arguments) {
  const ArgumentReader args("first", arguments, {});
  std::vector<Value> items = evaluator.Iterate(value);
  if (items.empty()) {
    return Value::Undefined("No first item, sequence was empty.");
  }
  return items.front();
}

Value Last(Evaluator& evaluator, const Value& value,
           const Arguments& arguments) {
  const ArgumentReader args("last", arguments, {});
  if (value.is(Kind::kSequence) &&
      value.sequence().form == SequenceForm::kGenerator) {
    Fail("'generator' object is not reversible");
  }
  if (value.is(Kind::kUndefined)) throw TemplateError(value.why());
  std::vector<Value> items = evaluator.Iterate(value);
  if (items.empty()) {
    return Value::Undefined("No last item, sequence was empty.");
  }
  return items.back();
}

Value ToList(Evaluator& evaluator, const Value& value,
             const Arguments& arguments) {
  const ArgumentReader args("list", arguments, {});
  return Value::List(evaluator.Iterate(value));
}

Value Reverse(Evaluator& evaluator, const Value& value,
              const Arguments& arguments) {
  const ArgumentReader args("reverse", arguments, {});
  std::vector<Value> items = evaluator.Iterate(value);
  std::ranges::reverse(items);
  if (!value.is(Kind::kString)) {
    if (value.is(Kind::kUndefined)) throw TemplateError(value.why());
    return MakeGenerator("reverse", std::move(items));
  }
  Text reversed;
  for (const Value& item : items) reversed.Append(item.text());
  return Value::String(std::move(reversed));
}

// Stable; takes what comparing costs.
void SortByKeys(Evaluator& evaluator, bool is_descending,
                std::vector<std::pair<Value, Value>>* keyed) {
  const auto is_before = [&](const auto& left, const auto& right) {
    evaluator.budget().TakeSteps(1);
    return is_descending ? IsLess(right.first, left.first, evaluator.budget())
                         : IsLess(left.first, right.first, evaluator.budget());
  };
  std::ranges::stable_sort(*keyed, is_before);
}

Value Sort(Evaluator& evaluator, const Value& value,
           const Arguments& arguments) {
  const ArgumentReader args("sort", arguments,
                            {"reverse", "case_sensitive", "attribute"});
  const bool keeps_case = args.BoolOr(1, false);
  const std::vector<AttributePath> paths =
      args.Has(2) ? AttributePath::Several(args[2], evaluator.budget())
                  : std::vector<AttributePath>(1);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : evaluator.Iterate(value)) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      keys.push_back(SortKey(evaluator, path.Get(evaluator, item), keeps_case));
    }
    keyed.emplace_back(Value::List(std::move(keys)), std::move(item));
  }
  SortByKeys(evaluator, args.BoolOr(0, false), &keyed);
  std::vector<Value> sorted;
  for (auto& [key, item] : keyed) sorted.push_back(std::move(item));
  return Value::List(std::move(sorted));
}

Value DictSort(Evaluator& evaluator, const Value& value,
               const Arguments& arguments) {
  const ArgumentReader args("dictsort", arguments,
                            {"case_sensitive", "by", "reverse"});
  if (value.is(Kind::kUndefined)) throw TemplateError(value.why());
  if (!value.is(Kind::kDict)) {
    Fail("dictsort() needs a dict, got ", TypeName(value));
  }
  const std::string by =
      args.Has(1) ? evaluator.ToText(args[1]).bytes() : "key";
  if (by != "key" && by != "value") {
    Fail("You can only sort by either \"key\" or \"value\"");
  }
  evaluator.budget().TakeSteps(static_cast<int64_t>(value.dict().items.size()) /
                               4);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.dict().items) {
    keyed.emplace_back(
        SortKey(evaluator, by == "key" ? key : item, args.BoolOr(0, false)),
        Value::Tuple({key, item}));
  }
  SortByKeys(evaluator, args.BoolOr(2, false), &keyed);
  std::vector<Value> sorted;
  for (auto& [key, item] : keyed) sorted.push_back(std::move(item));
  return Value::List(std::move(sorted));
}

Value ItemsFilter(Evaluator& evaluator, const Value& value,
                  const Arguments& arguments) {
  const ArgumentReader args("items", arguments, {});
  std::vector<Value> items;
  if (value.is(Kind::kUndefined)) return MakeGenerator("do_items", {});
  if (!value.is(Kind::kDict)) {
    Fail("Can only get item pairs from a mapping.");
  }
  evaluator.budget().TakeSteps(static_cast<int64_t>(value.dict().items.size()) /
                               4);
  for (const auto& [key, item] : value.dict().items) {
    items.push_back(Value::Tuple({key, item}));
  }
  return MakeGenerator("do_items", std::move(items));
}

Value Unique(Evaluator& evaluator, const Value& value,
             const Arguments& arguments) {
  const ArgumentReader args("unique", arguments,
                            {"case_sensitive", "attribute"});
  const AttributePath path = args.Has(1)
                                 ? AttributePath(args[1], evaluator.budget())
                                 : AttributePath();
  Dict seen;
  std::vector<Value> items;
  for (Value& item : evaluator.Iterate(value)) {
    const Value key =
        SortKey(evaluator, path.Get(evaluator, item), args.BoolOr(0, false));
    evaluator.budget().TakeSteps(1);
    if (seen.Find(key, evaluator.budget()) != nullptr) continue;
    seen.Set(key, Value(), evaluator.budget());
    items.push_back(std::move(item));
  }
  return MakeGenerator("unique", std::move(items));
}

template <bool kMax>
Value Extreme(Evaluator& evaluator, const Value& value,
              const Arguments& arguments) {
  const ArgumentReader args(kMax ? "max" : "min", arguments,
                            {"case_sensitive", "attribute"});
  const AttributePath path = args.Has(1)
                                 ? AttributePath(args[1], evaluator.budget())
                                 : AttributePath();
  const auto key_of = [&](const Value& item) {
    return SortKey(evaluator, path.Get(evaluator, item), args.BoolOr(0, false));
  };
  std::vector<Value> items = evaluator.Iterate(value);
  if (items.empty()) {
    return Value::Undefined("No aggregated item, sequence was empty.");
  }
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    evaluator.budget().TakeSteps(1);
    Value key = key_of(items[i]);
    const bool is_better = kMax ? IsLess(best_key, key, evaluator.budget())
                                : IsLess(key, best_key, evaluator.budget());
    if (!is_better) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Value Sum(Evaluator& evaluator, const Value& value,
          const Arguments& arguments) {
  const ArgumentReader args("sum", arguments, {"attribute", "start"});
  const AttributePath path = args.Has(0)
                                 ? AttributePath(args[0], evaluator.budget())
                                 : AttributePath();
  Value sum = args.Has(1) ? args[1] : Value::Int(0);
  if (sum.is(Kind::kString)) Fail("sum() cannot sum strings");
  for (const Value& item : evaluator.Iterate(value)) {
    evaluator.budget().TakeSteps(1);
    sum = ApplyBinary("+", sum, path.Get(evaluator, item), evaluator.budget());
  }
  return sum;
}

constexpr NamedFilter kSequenceFilters[] = {
    {"count", Length},      {"dictsort", DictSort},
    {"first", First},       {"items", ItemsFilter},
    {"join", JoinFilter},   {"last", Last},
    {"length", Length},     {"list", ToList},
    {"max", Extreme<true>}, {"min", Extreme<false>},
    {"reverse", Reverse},   {"sort", Sort},
    {"sum", Sum},           {"unique", Unique}};

}  // namespace

std::span<const NamedFilter> SequenceFilters() { return kSequenceFilters; }

}  // namespace espalier::jinja
