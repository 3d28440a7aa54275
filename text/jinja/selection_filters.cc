#include "text/jinja/selection_filters.h"

#include <algorithm>
#include <utility>

#include "text/jinja/attribute_path.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/generator.h"
#include "text/jinja/operators.h"
#include "text/jinja/tests.h"

namespace espalier::jinja {
namespace {

const std::string& NameOf(const Value& name, std::string_view what) {
  if (!name.is(Kind::kString)) {
    Fail("the name of a ", what, " must be a string, got ", TypeName(name));
  }
  return name.bytes();
}

// The arguments after the first `count`.
Arguments Rest(const Arguments& arguments, size_t count, Budget& budget) {
  budget.TakeSteps(static_cast<int64_t>(arguments.positional.size()) / 4 +
                   static_cast<int64_t>(arguments.named.size()));
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<int64_t>(count));
  return rest;
}

// As in jinja2 what is not true has no elements, even if it could have none.
std::vector<Value> Elements(Evaluator& evaluator, const Value& value) {
  return IsTrue(value) ? evaluator.Iterate(value) : std::vector<Value>();
}

// select(test, ...) and its kind: by what the test says of the element or of
// its attribute, or by whether that is true.
template <bool kByAttribute, bool kKeeps>
Value Choose(Evaluator& evaluator, const Value& value,
             const Arguments& arguments) {
  constexpr std::string_view kName =
      kByAttribute ? (kKeeps ? "selectattr" : "rejectattr")
                   : (kKeeps ? "select" : "reject");
  constexpr size_t kNumOwn = kByAttribute ? 1 : 0;
  const size_t num_given = arguments.positional.size();
  if (num_given < kNumOwn) Fail(kName, "() lacks the name of an attribute");
  const AttributePath path =
      kByAttribute ? AttributePath(arguments.positional[0], evaluator.budget())
                   : AttributePath();
  Test test = nullptr;
  Arguments rest;
  if (num_given > kNumOwn) {
    const std::string& name = NameOf(arguments.positional[kNumOwn], "test");
    test = FindTest(name);
    if (test == nullptr) Fail("unknown test \"", name, "\"");
    rest = Rest(arguments, kNumOwn + 1, evaluator.budget());
  }
  std::vector<Value> chosen;
  for (Value& item : Elements(evaluator, value)) {
    evaluator.budget().TakeSteps(1);
    const Value looked_at = path.Get(evaluator, item);
    const bool passes =
        test == nullptr ? IsTrue(looked_at) : test(evaluator, looked_at, rest);
    if (passes == kKeeps) chosen.push_back(std::move(item));
  }
  return MakeGenerator("select_or_reject", std::move(chosen));
}

Value MapAttribute(Evaluator& evaluator, const Value& value,
                   const Arguments& arguments) {
  const ArgumentReader args("map", arguments, {"", "attribute", "default"});
  const AttributePath path(args[1], evaluator.budget());
  const bool has_default = args.Has(2) && !args[2].is(Kind::kNone);
  std::vector<Value> mapped;
  for (const Value& item : Elements(evaluator, value)) {
    mapped.push_back(has_default ? path.GetOr(evaluator, item, args[2])
                                 : path.Get(evaluator, item));
  }
  return MakeGenerator("sync_do_map", std::move(mapped));
}

Value Map(Evaluator& evaluator, const Value& value,
          const Arguments& arguments) {
  if (arguments.positional.empty()) {
    const bool has_attribute = std::ranges::any_of(
        arguments.named,
        [](const auto& named) { return named.first.bytes() == "attribute"; });
    if (!has_attribute) Fail("map() needs a filter or an attribute");
    return MapAttribute(evaluator, value, arguments);
  }
  const std::string& name = NameOf(arguments.positional[0], "filter");
  const Filter filter = FindFilter(name);
  if (filter == nullptr) Fail("unknown filter \"", name, "\"");
  const Arguments rest = Rest(arguments, 1, evaluator.budget());
  std::vector<Value> mapped;
  for (const Value& item : Elements(evaluator, value)) {
    evaluator.budget().TakeSteps(1);
    mapped.push_back(evaluator.Apply(filter, item, rest));
  }
  return MakeGenerator("sync_do_map", std::move(mapped));
}

constexpr NamedFilter kSelectionFilters[] = {
    {"map", Map},
    {"reject", Choose<false, false>},
    {"rejectattr", Choose<true, false>},
    {"select", Choose<false, true>},
    {"selectattr", Choose<true, true>}};

}  // namespace

std::span<const NamedFilter> SelectionFilters() { return kSelectionFilters; }

}  // namespace espalier::jinja
