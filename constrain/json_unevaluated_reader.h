// JsonUnevaluatedReader: the formulas of "unevaluatedProperties" and
// "unevaluatedItems", about the members and items that no other keyword
// evaluates, of the subschema or of those that it applies to the same value.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "constrain/boolean_formula.h"
#include "constrain/json_assertions.h"
#include "constrain/json_scalar_reader.h"
#include "constrain/json_schema_document.h"

namespace espalier {

class JsonSchemaReader;

class JsonUnevaluatedReader {
 public:
  using Id = JsonSchemaDocument::Id;

  // All outlive this. `reader` reads the subschemas.
  JsonUnevaluatedReader(JsonSchemaDocument* document,
                        JsonAssertions* assertions, JsonScalarReader* scalars,
                        JsonSchemaReader* reader)
      : document_(*document),
        assertions_(*assertions),
        scalars_(*scalars),
        reader_(*reader) {}

  // Returns the formula of the keyword of subschema `id`, for objects or
  // arrays.
  //   value  the subschema that unevaluated members or items satisfy
  // Errors: kInvalidArgument if too much of it depends on the value, or as
  // JsonSchemaReader::Read.
  absl::StatusOr<Formula> Members(Id id, const json::value& value);
  absl::StatusOr<Formula> Items(Id id, const json::value& value);

 private:
  // A part of an object or array that a subschema evaluates if `condition`.
  struct Coverage {
    Formula condition = FormulaPool::kTrue;
    std::optional<int64_t> key = {};   // a member
    std::optional<Formula> keys = {};  // members
    int64_t num_items = 0;             // the first items
    bool has_all_items = false;
    std::optional<Formula> contained = {};  // items that satisfy it
  };

  // Parts found so far, and the subschemas that were visited.
  struct Walk {
    std::vector<Coverage> parts;
    std::set<std::pair<Id, Formula>> visited;
  };

  // Returns the parts that a subschema evaluates without its own "unevaluated"
  // keywords.
  absl::StatusOr<std::vector<Coverage>> CoverageOf(Id id);
  // Adds the parts that a subschema evaluates if `condition`.
  //   depth  references and subschemas that led here; 0: its own "unevaluated"
  //          keywords are left out
  absl::Status Add(Id id, Formula condition, int depth, Walk* walk);
  // Adds those of its own keywords.
  absl::Status AddOwn(Id id, const json::object& schema, Formula condition,
                      bool is_outer, std::vector<Coverage>* parts);
  // Adds those of the subschemas that it applies to the same value.
  absl::Status AddInner(Id id, const json::object& schema, Formula condition,
                        int depth, Walk* walk);

  JsonSchemaDocument& document_;
  JsonAssertions& assertions_;
  JsonScalarReader& scalars_;
  JsonSchemaReader& reader_;
};

}  // namespace espalier
