// Value: the result of an expression of a template, with Python's semantics:
// None, numbers, strings, lists, tuples, dictionaries, and Jinja's own kinds:
// undefined values, namespaces, loops and macros.
//
// Strings and containers are shared and immutable, as transformers' sandbox
// refuses to change them; so a container cannot hold itself. Only namespaces
// change. Containers nest at most kMaxValueDepth deep (budget.h), so that code
// may recurse into values.
//
// Differences to Python: integers have 64 bits, and an overflow is an error.
//
// Thread safety: one rendering's own, but for inputs, which are only read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "text/jinja/text.h"

namespace espalier::jinja {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kSequence,  // lists, tuples and what else has elements in an order
  kDict,
  kNamespace,
  kLoop,
  kFunction,
};

class Budget;
class Evaluator;
struct Arguments;
struct Sequence;
struct Dict;
struct Namespace;
struct Loop;
struct Function;

// Shared part of a value.
struct Object {
  virtual ~Object() = default;
  int depth = 0;  // levels of containers, itself included
};

class Value {
 public:
  Value() = default;  // undefined, without a name
  // Undefined: `why` is the error of what cannot be done with it.
  static Value Undefined(std::string why);
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value String(Text text);
  static Value String(std::string_view bytes) {
    return String(Text(std::string(bytes)));
  }
  // HTML, which "safe" and "escape" make: what is added to it is escaped.
  static Value Markup(Text text);
  // Errors (thrown): too deep.
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  static Value Of(std::shared_ptr<Sequence> sequence);
  static Value Of(std::shared_ptr<Dict> dict);
  static Value Of(std::shared_ptr<Namespace> attributes);
  static Value Of(std::shared_ptr<Loop> loop);
  static Value Of(std::shared_ptr<Function> function);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const {
    return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat);
  }
  // Bools are integers, too.
  bool is_integer() const { return is(Kind::kBool) || is(Kind::kInt); }

  // True for a number, a truth value or none that comes from an input, or a
  // number computed from one; its printed text is marked as input. Strings have
  // marks of their own (text.h); containers have their elements' marks.
  bool is_input() const { return is_input_; }
  Value MarkedAs(bool is_input) && {
    is_input_ = is_input;
    return std::move(*this);
  }

  // REQUIRES: the kind.
  bool boolean() const { return int_ != 0; }
  int64_t integer() const { return int_; }  // also for bools
  double number() const {                   // any number
    return is(Kind::kFloat) ? float_ : static_cast<double>(int_);
  }
  const Text& text() const;
  const std::string& bytes() const { return text().bytes(); }
  bool is_markup() const;
  const Sequence& sequence() const;
  const Dict& dict() const;
  Namespace& attributes() const;
  Loop& loop() const;
  const Function& function() const;
  // Why an undefined value cannot be used.
  std::string why() const;

  int depth() const { return object_ == nullptr ? 0 : object_->depth; }
  const Object* object() const { return object_.get(); }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, std::shared_ptr<Object> object)
      : kind_(kind), object_(std::move(object)) {}

  Kind kind_ = Kind::kUndefined;
  bool is_input_ = false;
  union {
    int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

enum class SequenceForm : uint8_t {
  kList,
  kTuple,
  kRange,
  kView,       // a dictionary's keys(), values() or items()
  kGenerator,  // from a filter; empty once read
};

struct Sequence : Object {
  SequenceForm form = SequenceForm::kList;
  std::string_view name;  // type of a view, or name of a generator
  std::vector<Value> items;
  // For a generator.
  mutable bool is_read = false;
  bool is_hashable = false;  // known once it is a value (Value::Of)
};

// In the order of insertion.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> items;

  // Null if there is none. A key that is no string is compared with all such
  // keys. Errors (thrown): a key that cannot be one; the budget is out.
  const Value* Find(const Value& key, Budget& budget) const;
  const Value* Find(std::string_view key) const;
  // Replaces one with the same key. Errors (thrown): as Find.
  void Set(Value key, Value value, Budget& budget);
  // REQUIRES: the key is a string.
  void Set(Value key, Value value);

 private:
  // Into items.
  std::optional<size_t> Place(const Value& key, Budget& budget) const;
  std::optional<size_t> Place(std::string_view key) const;
  void Add(Value key, Value value);

  // Into items. Keys may be those of a caller's JSON.
  std::unordered_map<std::string_view, size_t, KeyedHash> strings_;
};

struct Namespace : Object {
  std::unordered_map<std::string, Value, KeyedHash> attributes;

  const Value* Find(const std::string& name) const;
  void Set(const std::string& name, Value value);
};

// The `loop` of a for statement.
struct Loop : Object {
  std::vector<Value> items;
  int64_t index0 = 0;
};

// A callable: a function, a method with its object, or a macro.
struct Function : Object {
  std::string name;
  std::function<Value(Evaluator&, const Arguments&)> call;
};

// "str", "dict" and so on.
std::string TypeName(const Value& value);
bool IsTrue(const Value& value);
// == and <. Both take what they walk through from the budget: containers may
// share their elements, so that few of them can be very many values.
// Values of unlike kinds are not equal.
// Errors (thrown): the budget is out.
bool AreEqual(const Value& left, const Value& right, Budget& budget);
// Errors (thrown): kinds that have no order, as TypeError; the budget is out.
bool IsLess(const Value& left, const Value& right, Budget& budget);

// True if the value can be a key: no list, no dictionary, and no tuple with
// one.
bool IsHashable(const Value& value);

// 1 + the deepest of `items`. Errors (thrown): too deep.
int DepthAround(const std::vector<Value>& items);

}  // namespace espalier::jinja
