// JsonShape: the values that satisfy a formula of subschemas, by their types.
// Arrays and objects are automata whose letters are values: an edge reads an
// item, or a key and a value of it, that satisfies a formula of its own.
//
// A state is the formula that the rest of the array or object has to satisfy,
// its derivative (Brzozowski 1964) by what was read. The values of the next
// item are divided by which of the subschemas that matter they satisfy; each
// part has one edge. So "not" and "oneOf" are as exact as "allOf".
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "constrain/boolean_formula.h"
#include "constrain/json_assertions.h"
#include "constrain/json_schema_bounds.h"
#include "constrain/json_schema_keys.h"
#include "constrain/json_schema_reader.h"

namespace espalier {

struct JsonMachine {
  struct Edge {
    std::optional<int64_t> key = {};     // this key, in an object
    Formula keys = FormulaPool::kFalse;  // or one of these, over kString
    Formula value = FormulaPool::kTrue;  // over kSchema
    int to = 0;
  };
  struct State {
    bool accepts = false;
    // The state without the next key, which is optional; -1: there is none.
    int skip = -1;
    std::vector<Edge> edges = {};
  };
  std::vector<State> states = {};  // the first is the start
  // An object's minProperties may leave out all texts, because other keys are
  // of different groups.
  bool may_lack_keys = false;
};

struct JsonShape {
  bool has_null = false;
  bool has_false = false;
  bool has_true = false;
  Formula number = FormulaPool::kFalse;  // over kNumber
  Formula string = FormulaPool::kFalse;  // over kString
  std::optional<JsonMachine> array = {};
  std::optional<JsonMachine> object = {};
};

// Makes shapes. Objects have the keys that their subschemas name in the order
// of these, then other keys. If the values of other keys decide whether an
// object satisfies the formula, not only that it does not, these keys ascend by
// their first characters, so that none comes twice; else a repeated one changes
// nothing.
class JsonShapeBuilder {
 public:
  // All outlive this.
  JsonShapeBuilder(JsonSchemaReader* reader, JsonSchemaBounds* bounds,
                   JsonSchemaKeys* keys, JsonAssertions* assertions)
      : reader_(*reader),
        bounds_(*bounds),
        keys_(*keys),
        assertions_(*assertions) {}

  // Returns the shape of a formula over kSchema.
  // Errors: kInvalidArgument with a JSON pointer, or if the budget is spent.
  absl::StatusOr<JsonShape> Build(Formula formula);

 private:
  // The values of an item that lead to one state.
  struct Branch {
    Formula rest;   // the state
    Formula value;  // over kSchema
  };
  // A state of an object.
  struct Place {
    size_t num_keys = 0;  // keys before it
    Formula rest = FormulaPool::kTrue;
    int group = 0;  // the last other key's
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  absl::StatusOr<JsonMachine> BuildArray(Formula formula);
  absl::StatusOr<JsonMachine> BuildObject(Formula formula,
                                          const std::vector<int64_t>& keys);
  // Returns the keys of an object's formula in order.
  absl::StatusOr<std::vector<int64_t>> OrderedKeys(Formula schemas,
                                                   Formula formula);
  // Returns the formula after an item; its kSchema are about the item.
  Formula AfterItem(Formula formula);
  // Each is like AfterItem, after a key or without it.
  // Errors: kInvalidArgument if an incomplete language may lack the key, and
  // the formula asks for that.
  absl::StatusOr<Formula> AfterKey(Formula formula, int64_t key);
  Formula WithoutKey(Formula formula, int64_t key);
  bool AcceptsEnd(Formula formula);
  // True if an object that does not satisfy the formula might with more
  // members.
  bool WantsMoreMembers(Formula formula);
  // Divides the values of an item by the states that they lead to.
  absl::StatusOr<std::vector<Branch>> Split(Formula formula);
  absl::StatusOr<std::vector<Branch>> SplitUnmemoized(Formula formula);
  // Other keys that the formula treats alike.
  struct KeyClass {
    Formula keys;  // over kString
    Formula rest;  // after one of them; its kSchema are about the value
  };
  absl::Status AddKeyClasses(Formula keys, Formula rest,
                             std::vector<Formula> undecided,
                             std::vector<KeyClass>* classes);
  absl::StatusOr<Formula> GroupOfKeys(int group);
  bool IsSensitiveToRepeatedKeys(Formula formula) const;
  absl::Status AddOtherKeys(const Place& place, Formula keys,
                            std::vector<std::pair<KeyClass, int>>* classes);

  JsonSchemaReader& reader_;
  JsonSchemaBounds& bounds_;
  JsonSchemaKeys& keys_;
  JsonAssertions& assertions_;
  std::map<Formula, std::vector<Branch>> splits_;
};

}  // namespace espalier
