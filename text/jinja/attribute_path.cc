#include "text/jinja/attribute_path.h"

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/number.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

std::vector<std::string> SplitAtCharacter(const std::string& text,
                                          char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool IsAllDigits(const std::string& text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

AttributePath::AttributePath(const Value& attribute, Budget& budget) {
  if (attribute.is(Kind::kNone)) return;
  if (!attribute.is(Kind::kString)) {
    if (!attribute.is_integer()) {
      Fail("attribute must be a string or an integer, got ",
           TypeName(attribute));
    }
    keys_.push_back(attribute);
    return;
  }
  budget.TakeSteps(static_cast<int64_t>(attribute.text().size()) / 16);
  for (const std::string& part : SplitAtCharacter(attribute.bytes(), '.')) {
    const std::optional<int64_t> number =
        IsAllDigits(part) ? ReadInteger(part, 10) : std::nullopt;
    keys_.push_back(number ? Value::Int(*number) : Value::String(part));
  }
}

std::vector<AttributePath> AttributePath::Several(const Value& attribute,
                                                  Budget& budget) {
  if (!attribute.is(Kind::kString)) return {AttributePath(attribute, budget)};
  std::vector<AttributePath> paths;
  budget.TakeSteps(static_cast<int64_t>(attribute.text().size()) / 16);
  for (const std::string& part : SplitAtCharacter(attribute.bytes(), ',')) {
    paths.emplace_back(Value::String(part), budget);
  }
  return paths;
}

Value AttributePath::Get(Evaluator& evaluator, const Value& item) const {
  Value value = item;
  for (const Value& key : keys_) {
    evaluator.budget().TakeSteps(1);
    value = evaluator.Item(value, key);
  }
  return value;
}

Value AttributePath::GetOr(Evaluator& evaluator, const Value& item,
                           const Value& otherwise) const {
  Value value = item;
  for (const Value& key : keys_) {
    evaluator.budget().TakeSteps(1);
    value = evaluator.Item(value, key);
    if (value.is(Kind::kUndefined)) value = otherwise;
  }
  return value;
}

Value SortKey(Evaluator& evaluator, const Value& value, bool keeps_case) {
  if (keeps_case || !value.is(Kind::kString)) return value;
  evaluator.budget().TakeBytes(value.text().size());
  return Value::String(ToLower(value.bytes()));
}

}  // namespace espalier::jinja
