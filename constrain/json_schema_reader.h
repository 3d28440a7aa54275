// JsonSchemaReader: a subschema's keywords as a boolean formula of assertions
// about a value.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "constrain/boolean_formula.h"
#include "constrain/json_assertions.h"
#include "constrain/json_schema_document.h"

namespace espalier {

class JsonSchemaReader {
 public:
  using Id = JsonSchemaDocument::Id;

  // Both outlive this.
  JsonSchemaReader(JsonSchemaDocument* document, JsonAssertions* assertions)
      : document_(*document), assertions_(*assertions) {}

  // Returns the formula of a subschema, without kSchema.
  // Errors: kInvalidArgument with the JSON pointer of a keyword.
  absl::StatusOr<Formula> Read(Id id);
  // Returns `formula` with its subschemas' formulas in place of kSchema.
  absl::StatusOr<Formula> Expand(Formula formula);

  // Returns the keys that a subschema names, in the order of its text, then of
  // the subschemas that it applies to the same object.
  absl::StatusOr<const std::vector<int64_t>*> KeysOf(Id id);

  // True if no value satisfies both, as far as types and constants show.
  // Errors: kInvalidArgument if the budget is spent.
  absl::StatusOr<bool> AreDisjoint(Id a, Id b);

  // The values of a kDistinct list.
  const std::vector<Id>& ListOf(int64_t index) const { return lists_[index]; }

 private:
  // The values that a subschema has at most: of some types, and perhaps of a
  // list.
  struct Bounds {
    uint8_t types = 0xFF;
    std::optional<std::set<std::string>> values = {};  // canonical
  };
  // A part of an object or array that a subschema evaluates if `condition`.
  struct Coverage {
    Formula condition = FormulaPool::kTrue;
    std::optional<int64_t> key = {};   // a member
    std::optional<Formula> keys = {};  // members
    int64_t num_items = 0;             // the first items
    bool has_all_items = false;
    std::optional<Formula> contained = {};  // items that satisfy it
  };
  struct Keywords;

  absl::Status Error(Id id, std::string_view keyword,
                     std::string_view message) const;
  absl::StatusOr<Formula> ReadObject(Id id, const json::object& schema);
  absl::StatusOr<Formula> ReadKeyword(Id id, const json::object& schema,
                                      std::string_view keyword,
                                      const json::value& value);
  absl::StatusOr<std::optional<Formula>> ReadApplicator(
      Id id, const json::object& schema, std::string_view keyword,
      const json::value& value);
  absl::StatusOr<std::optional<Formula>> ReadScalar(Id id,
                                                    const json::object& schema,
                                                    std::string_view keyword,
                                                    const json::value& value);
  absl::StatusOr<std::optional<Formula>> ReadArrayKeyword(
      Id id, const json::object& schema, std::string_view keyword,
      const json::value& value);
  absl::StatusOr<std::optional<Formula>> ReadObjectKeyword(
      Id id, const json::object& schema, std::string_view keyword,
      const json::value& value);

  absl::StatusOr<Formula> ReadType(const json::value& value);
  absl::StatusOr<Formula> ReadConst(Id id, const json::value& value);
  absl::StatusOr<Formula> ReadEnum(Id id, const json::value& value);
  absl::StatusOr<Formula> ReadBound(const json::object& schema,
                                    std::string_view keyword,
                                    const json::value& value);
  absl::StatusOr<Formula> ReadFormat(const json::value& value);
  absl::StatusOr<Formula> ReadUnique(Id id, const json::object& schema);
  absl::StatusOr<Formula> ReadContains(Id id, const json::object& schema,
                                       const json::value& value);
  absl::StatusOr<Formula> ReadDependencies(Id id, std::string_view keyword,
                                           const json::value& value);
  absl::StatusOr<Formula> ReadUnevaluatedMembers(Id id,
                                                 const json::value& value);
  absl::StatusOr<Formula> ReadUnevaluatedItems(Id id, const json::value& value);
  // Returns the keys that additionalProperties is about.
  absl::StatusOr<Formula> OtherKeys(const json::object& schema);
  absl::StatusOr<Formula> KeysLike(std::string_view pattern);
  absl::StatusOr<Formula> Reference(Id id, std::string_view keyword,
                                    const json::value& value);
  absl::StatusOr<Id> Target(Id id, std::string_view keyword,
                            const json::value& value);
  // Returns "the child satisfies the subschema": kTrue and kFalse of boolean
  // ones.
  absl::StatusOr<Formula> Child(Id id, std::string_view path,
                                const json::value& value);
  absl::StatusOr<Formula> ReadAt(Id id, std::string_view path,
                                 const json::value& value);
  absl::StatusOr<std::vector<Formula>> ReadAll(Id id, std::string_view keyword,
                                               const json::value& value);
  absl::Status AddKeys(Id id, int depth, std::vector<int64_t>* keys,
                       std::set<int64_t>* seen, std::set<Id>* visited);
  // Appends the parts that a subschema evaluates; not those of "unevaluated"
  // keywords of `id` itself if `is_outer`.
  absl::Status AddCoverage(Id id, Formula condition, bool is_outer, int depth,
                           std::vector<Coverage>* coverage,
                           std::set<std::pair<Id, Formula>>* visited);
  // Errors: kInvalidArgument if the budget is spent.
  absl::StatusOr<const Bounds*> BoundsOf(Id id, int depth);
  absl::StatusOr<Bounds> FindBounds(Id id, int depth);
  // True for drafts before 2019-09, in which "items" may be a tuple.
  bool IsOldDraft() const {
    return document_.draft() != JsonSchemaDraft::k2020_12;
  }

  JsonSchemaDocument& document_;
  JsonAssertions& assertions_;
  std::map<Id, Formula> formulas_;
  std::set<Id> reading_;  // subschemas whose formulas are being made
  std::map<Id, std::vector<int64_t>> keys_;
  std::map<Id, Bounds> bounds_;
  std::vector<std::vector<Id>> lists_;
};

}  // namespace espalier
