// The syntax tree of a template, as the parser makes it and the evaluator walks
// it. Names are numbers (Names), so that looking one up compares no strings.
//
// Thread safety: constant once parsed; any thread may then read.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "text/jinja/error.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

// A name of a template by its number.
using NameId = int;

class Names {
 public:
  NameId Intern(std::string_view name) {
    const auto [place, is_new] =
        ids_.try_emplace(std::string(name), static_cast<NameId>(names_.size()));
    if (is_new) names_.push_back(place->first);
    return place->second;
  }
  // Nothing if the template has no such name.
  std::optional<NameId> Find(std::string_view name) const {
    const auto found = ids_.find(name);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  const std::string& operator[](NameId id) const { return names_[id]; }
  int size() const { return static_cast<int>(names_.size()); }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, NameId, KeyedHash, std::equal_to<>> ids_;
};

enum class ExpressionKind {
  kConstant,     // value
  kName,         // name
  kTuple,        // children
  kList,         // children
  kDict,         // children: key, value, key, value ...
  kConditional,  // children: condition, then, and else, which may be missing
  kAnd,          // children: left, right
  kOr,           // children: left, right
  kNot,          // children: operand
  kUnary,        // text: - or +; children: operand
  kBinary,       // text: the operator; children: left, right
  kConcat,       // children: of ~
  kCompare,      // children: first, second ...; operators between them
  kAttribute,    // children: object; text
  kItem,         // children: object, key
  kSlice,        // children: object, begin, end, step; null if left out
  kCall,         // children: callee; arguments
  kFilter,       // children: operand, null in a filter block; text; arguments
  kTest,         // children: operand; text; arguments
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// Arguments of a call.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *list; null if there is none
  ExpressionPtr more_named;       // **dictionary; the same
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  Position at;
  int depth = 1;  // levels of expressions, itself included
  Value value;
  NameId name = 0;
  std::string text;
  std::vector<ExpressionPtr> children;
  std::vector<std::string> operators;
  CallArguments arguments;
};

enum class StatementKind {
  kData,         // text
  kOutput,       // expressions
  kIf,           // branches; body is that of else
  kFor,          // target, expressions: iterated, filter or null; body, or_else
  kSet,          // target, expressions: value
  kSetBlock,     // target, expressions: filter or null; body
  kMacro,        // macro
  kCallBlock,    // macro: the caller; expressions: call
  kFilterBlock,  // expressions: filter; body
  kWith,         // targets; expressions: their values; body
  kScope,        // body, in a scope of its own
  kBreak,
  kContinue,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// Target of an assignment: a name, an attribute of a namespace, or a tuple.
struct Target {
  NameId name = 0;
  // Attribute of the namespace `name`; empty: the name itself.
  std::string attribute;
  std::vector<Target> parts;  // elements of the tuple
  bool is_tuple = false;
};

struct Macro {
  std::string name;
  std::vector<NameId> parameters;
  std::unordered_map<NameId, size_t> places;  // among the parameters
  // Defaults of the last parameters.
  std::vector<ExpressionPtr> defaults;
  Body body;
  // Special names that the body uses.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind = StatementKind::kData;
  Position at;
  std::string text;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Branch> branches;
  Body body;
  Body or_else;
  bool uses_loop = false;  // a for statement's body names its loop
  std::unique_ptr<Macro> macro;
};

}  // namespace espalier::jinja
