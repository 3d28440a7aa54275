// JsonSchemaReader: a subschema's keywords as a boolean formula of assertions
// about a value. Keywords about a value itself are JsonScalarReader's, and
// those about what other keywords leave out JsonUnevaluatedReader's.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "constrain/boolean_formula.h"
#include "constrain/json_assertions.h"
#include "constrain/json_scalar_reader.h"
#include "constrain/json_schema_bounds.h"
#include "constrain/json_schema_document.h"
#include "constrain/json_unevaluated_reader.h"

namespace espalier {

class JsonSchemaReader {
 public:
  using Id = JsonSchemaDocument::Id;

  // All outlive this.
  JsonSchemaReader(JsonSchemaDocument* document, JsonAssertions* assertions,
                   JsonSchemaBounds* bounds)
      : document_(*document),
        assertions_(*assertions),
        bounds_(*bounds),
        scalars_(document, assertions),
        unevaluated_(document, assertions, &scalars_, this) {}
  JsonSchemaReader(const JsonSchemaReader&) = delete;
  JsonSchemaReader& operator=(const JsonSchemaReader&) = delete;

  // Returns the formula of a subschema, without kSchema.
  // Errors: kInvalidArgument with the JSON pointer of a keyword.
  absl::StatusOr<Formula> Read(Id id);
  // Returns Read of the subschema `value` of `id` at `path` there.
  absl::StatusOr<Formula> ReadAt(Id id, std::string_view path,
                                 const json::value& value);
  // Returns "the child satisfies this subschema": kTrue and kFalse of boolean
  // ones.
  absl::StatusOr<Formula> Child(Id id, std::string_view path,
                                const json::value& value);
  // Returns `formula` with its subschemas' formulas in place of kSchema.
  absl::StatusOr<Formula> Expand(Formula formula);

  // Keywords of one subschema that no value satisfies together.
  struct Contradiction {
    // The subschema of the value that they are about; it may refer to theirs,
    // or have it as an alternative, but not as a condition or negated.
    Id value = 0;
    // "minLength 5 at #/properties/a is above maxLength 3"
    std::string text = {};
  };
  // The first few that were read: a least above a most, of the only type.
  const std::vector<Contradiction>& contradictions() const {
    return contradictions_;
  }
  // The values of a kDistinct list.
  const std::vector<Id>& ListOf(int64_t index) const { return lists_[index]; }

 private:
  absl::Status Error(Id id, std::string_view keyword,
                     std::string_view message) const;
  void NoteContradiction(Id id, const json::object& schema);
  // ReadAt for a subschema that the value need not satisfy.
  absl::StatusOr<Formula> ReadCondition(Id id, std::string_view path,
                                        const json::value& value);
  absl::StatusOr<Formula> ReadObject(Id id, const json::object& schema);
  absl::StatusOr<Formula> ReadKeyword(Id id, const json::object& schema,
                                      std::string_view keyword,
                                      const json::value& value);
  absl::StatusOr<std::optional<Formula>> ReadApplicator(
      Id id, const json::object& schema, std::string_view keyword,
      const json::value& value);
  absl::StatusOr<std::optional<Formula>> ReadArrayKeyword(
      Id id, const json::object& schema, std::string_view keyword,
      const json::value& value);
  absl::StatusOr<std::optional<Formula>> ReadObjectKeyword(
      Id id, const json::object& schema, std::string_view keyword,
      const json::value& value);

  absl::StatusOr<Formula> ReadUnique(Id id, const json::object& schema);
  absl::StatusOr<Formula> ReadContains(Id id, const json::object& schema,
                                       const json::value& value);
  absl::StatusOr<Formula> ReadDependencies(Id id, std::string_view keyword,
                                           const json::value& value);
  absl::StatusOr<std::vector<Formula>> ReadAll(Id id, std::string_view keyword,
                                               const json::value& value);

  JsonSchemaDocument& document_;
  JsonAssertions& assertions_;
  JsonSchemaBounds& bounds_;
  JsonScalarReader scalars_;
  JsonUnevaluatedReader unevaluated_;
  std::map<Id, Formula> formulas_;
  std::set<Id> reading_;  // subschemas whose formulas are being made
  std::vector<std::vector<Id>> lists_;
  std::vector<Contradiction> contradictions_;
  Id value_ = 0;            // the first of reading_
  int num_conditions_ = 0;  // "not" and "if" that are being read
};

}  // namespace espalier
