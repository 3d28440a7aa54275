// JsonScalarReader: the formulas of JSON Schema keywords about a value itself,
// not what it contains: "type", "const", "enum", and those about numbers and
// strings.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "constrain/boolean_formula.h"
#include "constrain/json_assertions.h"
#include "constrain/json_schema_document.h"

namespace espalier {

class JsonScalarReader {
 public:
  using Id = JsonSchemaDocument::Id;

  // Both outlive this.
  JsonScalarReader(JsonSchemaDocument* document, JsonAssertions* assertions)
      : document_(*document), assertions_(*assertions) {}

  // Returns the formula of a keyword of subschema `id`, which is `schema`;
  // unset if it is another kind of keyword.
  // Errors: kInvalidArgument, without the keyword's place.
  absl::StatusOr<std::optional<Formula>> Read(Id id, const json::object& schema,
                                              std::string_view keyword,
                                              const json::value& value);

  // Return the keys that a member of "patternProperties" of subschema `id` is
  // about, and those that "additionalProperties" is about.
  // Errors: kInvalidArgument with the pointer of the pattern.
  absl::StatusOr<Formula> KeysLike(Id id, std::string_view pattern);
  absl::StatusOr<Formula> OtherKeys(Id id, const json::object& schema);

 private:
  absl::StatusOr<Formula> ReadType(const json::value& value);
  absl::StatusOr<Formula> ReadConst(Id id, const json::value& value);
  absl::StatusOr<Formula> ReadEnum(Id id, const json::value& value);
  absl::StatusOr<Formula> ReadBound(const json::object& schema,
                                    std::string_view keyword,
                                    const json::value& value);
  absl::StatusOr<Formula> ReadFormat(const json::value& value);
  // Returns the strings that a regular expression matches somewhere.
  absl::StatusOr<Formula> StringsLike(std::string_view pattern);

  JsonSchemaDocument& document_;
  JsonAssertions& assertions_;
};

}  // namespace espalier
