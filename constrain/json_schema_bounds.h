// JsonSchemaBounds: values that a subschema has at most, as far as its types,
// constants and the subschemas that it applies to the same value show.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "constrain/compile_budget.h"
#include "constrain/json_assertions.h"
#include "constrain/json_schema_document.h"

namespace espalier {

class JsonSchemaBounds {
 public:
  using Id = JsonSchemaDocument::Id;

  // A value is of one of `types`, bits of JsonType, and, if there are `values`,
  // among these, as CanonicalJson writes them.
  struct Bounds {
    uint8_t types = (1U << kNumJsonTypes) - 1;
    std::optional<std::set<std::string>> values = {};
  };

  // Both outlive this.
  JsonSchemaBounds(JsonSchemaDocument* document, CompileBudget* budget)
      : document_(*document), budget_(*budget) {}

  // Errors: kInvalidArgument if the budget is spent.
  absl::StatusOr<const Bounds*> Of(Id id) { return Of(id, /*depth=*/0); }

  // True if no value is within both subschemas' bounds. False says nothing.
  // Errors: kInvalidArgument if the budget is spent.
  absl::StatusOr<bool> AreDisjoint(Id a, Id b);

 private:
  // `depth`: references and subschemas that led here.
  absl::StatusOr<const Bounds*> Of(Id id, int depth);
  absl::StatusOr<Bounds> Find(Id id, int depth);
  // Narrows `bounds` to what a keyword of `id` allows.
  absl::Status ApplyKeyword(Id id, std::string_view keyword,
                            const json::value& value, int depth,
                            Bounds* bounds);
  absl::Status ApplyParts(Id id, std::string_view keyword,
                          const json::array& parts, int depth, Bounds* bounds);
  absl::Status Intersect(const Bounds& other, Bounds* bounds);
  absl::Status Join(const Bounds& other, Bounds* bounds);

  JsonSchemaDocument& document_;
  CompileBudget& budget_;
  std::map<Id, Bounds> known_;
};

}  // namespace espalier
