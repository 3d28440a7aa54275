#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/budget.h"
#include "text/jinja/error.h"

namespace espalier::jinja {
namespace {

struct StringObject : Object {
  StringObject(Text t, bool m) : text(std::move(t)), is_markup(m) {}
  Text text;
  bool is_markup;
};

struct UndefinedObject : Object {
  explicit UndefinedObject(std::string w) : why(std::move(w)) {}
  std::string why;
};

int CheckDepth(int depth) {
  if (depth > kMaxValueDepth) {
    throw TemplateError::OutOf(
        Concat("values are nested more than ", kMaxValueDepth, " deep"));
  }
  return depth;
}

bool AreEqualItems(const std::vector<Value>& left,
                   const std::vector<Value>& right, Budget& budget) {
  return std::ranges::equal(left, right, [&](const Value& l, const Value& r) {
    budget.TakeSteps(1);
    return AreEqual(l, r, budget);
  });
}

bool AreEqualSequences(const Sequence& left, const Sequence& right,
                       Budget& budget) {
  if (left.form != right.form) return false;
  if (left.form == SequenceForm::kGenerator) return &left == &right;
  return AreEqualItems(left.items, right.items, budget);
}

bool AreEqualDicts(const Dict& left, const Dict& right, Budget& budget) {
  return left.items.size() == right.items.size() &&
         std::ranges::all_of(left.items, [&](const auto& item) {
           budget.TakeSteps(1);
           const Value* const other = right.Find(item.first, budget);
           return other != nullptr && AreEqual(item.second, *other, budget);
         });
}

void CheckHashable(const Value& key) {
  if (!IsHashable(key)) Fail("a ", TypeName(key), " cannot be a key");
}

bool IsLessItems(const std::vector<Value>& left,
                 const std::vector<Value>& right, Budget& budget) {
  const size_t size = std::min(left.size(), right.size());
  for (size_t i = 0; i < size; ++i) {
    budget.TakeSteps(1);
    if (!AreEqual(left[i], right[i], budget)) {
      return IsLess(left[i], right[i], budget);
    }
  }
  return left.size() < right.size();
}

// Uses the elements' cached results, so shared elements are not traversed
// again.
bool IsHashableSequence(const Sequence& sequence) {
  if (sequence.form == SequenceForm::kGenerator) return true;
  return (sequence.form == SequenceForm::kTuple ||
          sequence.form == SequenceForm::kRange) &&
         std::ranges::all_of(sequence.items, IsHashable);
}

}  // namespace

bool IsHashable(const Value& value) {
  if (value.is(Kind::kDict)) return false;
  return !value.is(Kind::kSequence) || value.sequence().is_hashable;
}

int DepthAround(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return CheckDepth(depth + 1);
}

Value Value::Undefined(std::string why) {
  return Value(Kind::kUndefined,
               std::make_shared<UndefinedObject>(std::move(why)));
}

Value Value::Bool(bool value) {
  Value result(Kind::kBool);
  result.int_ = value ? 1 : 0;
  return result;
}

Value Value::Int(int64_t value) {
  Value result(Kind::kInt);
  result.int_ = value;
  return result;
}

Value Value::Float(double value) {
  Value result(Kind::kFloat);
  result.float_ = value;
  return result;
}

Value Value::String(Text text) {
  return Value(Kind::kString,
               std::make_shared<StringObject>(std::move(text), false));
}

Value Value::Markup(Text text) {
  return Value(Kind::kString,
               std::make_shared<StringObject>(std::move(text), true));
}

Value Value::List(std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  sequence->items = std::move(items);
  return Of(std::move(sequence));
}

Value Value::Tuple(std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  sequence->form = SequenceForm::kTuple;
  sequence->items = std::move(items);
  return Of(std::move(sequence));
}

Value Value::Of(std::shared_ptr<Sequence> sequence) {
  sequence->depth = DepthAround(sequence->items);
  sequence->is_hashable = IsHashableSequence(*sequence);
  return Value(Kind::kSequence, std::move(sequence));
}

Value Value::Of(std::shared_ptr<Dict> dict) {
  int depth = 0;
  for (const auto& [key, value] : dict->items) {
    depth = std::max({depth, key.depth(), value.depth()});
  }
  dict->depth = CheckDepth(depth + 1);
  return Value(Kind::kDict, std::move(dict));
}

// The members of a namespace are destroyed before it is (Evaluator), so its
// depth does not grow with them.
Value Value::Of(std::shared_ptr<Namespace> attributes) {
  attributes->depth = 1;
  return Value(Kind::kNamespace, std::move(attributes));
}

Value Value::Of(std::shared_ptr<Loop> loop) {
  loop->depth = DepthAround(loop->items);
  return Value(Kind::kLoop, std::move(loop));
}

Value Value::Of(std::shared_ptr<Function> function) {
  CheckDepth(function->depth);
  return Value(Kind::kFunction, std::move(function));
}

const Text& Value::text() const {
  return static_cast<const StringObject&>(*object_).text;
}
bool Value::is_markup() const {
  return static_cast<const StringObject&>(*object_).is_markup;
}
const Sequence& Value::sequence() const {
  return static_cast<const Sequence&>(*object_);
}
const Dict& Value::dict() const { return static_cast<const Dict&>(*object_); }
Namespace& Value::attributes() const {
  return static_cast<Namespace&>(*object_);
}
Loop& Value::loop() const { return static_cast<Loop&>(*object_); }
const Function& Value::function() const {
  return static_cast<const Function&>(*object_);
}

std::string Value::why() const {
  return object_ == nullptr ? "value is undefined"
                            : static_cast<const UndefinedObject&>(*object_).why;
}

std::optional<size_t> Dict::Place(std::string_view key) const {
  const auto found = strings_.find(key);
  if (found == strings_.end()) return std::nullopt;
  return found->second;
}

std::optional<size_t> Dict::Place(const Value& key, Budget& budget) const {
  if (key.is(Kind::kString)) {
    budget.TakeBytes(key.text().size());
    return Place(key.bytes());
  }
  CheckHashable(key);
  budget.TakeSteps(static_cast<int64_t>(items.size() - strings_.size()) / 16);
  for (size_t i = 0; i < items.size(); ++i) {
    const Value& other = items[i].first;
    if (!other.is(Kind::kString) && AreEqual(other, key, budget)) return i;
  }
  return std::nullopt;
}

const Value* Dict::Find(std::string_view key) const {
  const std::optional<size_t> place = Place(key);
  return place ? &items[*place].second : nullptr;
}

const Value* Dict::Find(const Value& key, Budget& budget) const {
  const std::optional<size_t> place = Place(key, budget);
  return place ? &items[*place].second : nullptr;
}

void Dict::Set(Value key, Value value, Budget& budget) {
  if (const std::optional<size_t> place = Place(key, budget)) {
    items[*place].second = std::move(value);
    return;
  }
  Add(std::move(key), std::move(value));
}

void Dict::Set(Value key, Value value) {
  if (const std::optional<size_t> place = Place(key.bytes())) {
    items[*place].second = std::move(value);
    return;
  }
  Add(std::move(key), std::move(value));
}

void Dict::Add(Value key, Value value) {
  items.emplace_back(std::move(key), std::move(value));
  const Value& added = items.back().first;
  if (added.is(Kind::kString)) strings_[added.bytes()] = items.size() - 1;
}

const Value* Namespace::Find(const std::string& name) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? nullptr : &found->second;
}

void Namespace::Set(const std::string& name, Value value) {
  attributes.insert_or_assign(name, std::move(value));
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return "function";
    case Kind::kSequence:
      break;
  }
  switch (value.sequence().form) {
    case SequenceForm::kList:
      return "list";
    case SequenceForm::kTuple:
      return "tuple";
    case SequenceForm::kRange:
      return "range";
    case SequenceForm::kGenerator:
      return "generator";
    case SequenceForm::kView:
      break;
  }
  return std::string(value.sequence().name);
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kDict:
      return !value.dict().items.empty();
    case Kind::kSequence:
      return value.sequence().form == SequenceForm::kGenerator ||
             !value.sequence().items.empty();
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kFunction:
      break;
  }
  return true;
}

bool AreEqual(const Value& left, const Value& right, Budget& budget) {
  if (left.is_number() && right.is_number()) {
    return left.is(Kind::kFloat) || right.is(Kind::kFloat)
               ? left.number() == right.number()
               : left.integer() == right.integer();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (left.text().size() != right.text().size()) return false;
      budget.TakeBytes(left.text().size());
      return left.bytes() == right.bytes();
    case Kind::kSequence:
      return left.object() == right.object() ||
             AreEqualSequences(left.sequence(), right.sequence(), budget);
    case Kind::kDict:
      return left.object() == right.object() ||
             AreEqualDicts(left.dict(), right.dict(), budget);
    default:
      return left.object() == right.object();
  }
}

bool IsLess(const Value& left, const Value& right, Budget& budget) {
  if (left.is_number() && right.is_number()) {
    return left.is(Kind::kFloat) || right.is(Kind::kFloat)
               ? left.number() < right.number()
               : left.integer() < right.integer();
  }
  if (left.is(Kind::kUndefined)) throw TemplateError(left.why());
  if (right.is(Kind::kUndefined)) throw TemplateError(right.why());
  if (left.is(Kind::kString) && right.is(Kind::kString)) {
    budget.TakeBytes(std::min(left.text().size(), right.text().size()));
    return left.bytes() < right.bytes();  // UTF-8 has code points' order
  }
  if (left.is(Kind::kSequence) && right.is(Kind::kSequence)) {
    const SequenceForm form = left.sequence().form;
    const bool is_ordered =
        form == SequenceForm::kList || form == SequenceForm::kTuple;
    if (is_ordered && right.sequence().form == form) {
      return IsLessItems(left.sequence().items, right.sequence().items, budget);
    }
  }
  Fail("'", TypeName(left), "' and '", TypeName(right),
       "' have no order to compare by");
}

}  // namespace espalier::jinja
