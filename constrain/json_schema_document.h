// JsonSchemaDocument: the subschemas of a JSON Schema and the references among
// them. Equal subschemas, annotations aside, are one, so that languages made of
// them are compared by their numbers.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "constrain/compile_budget.h"

namespace espalier {

// Drafts 4 and 6 are 7 without its later keywords.
enum class JsonSchemaDraft : uint8_t { k4, k6, k7, k2020_12 };

class JsonSchemaDocument {
 public:
  using Id = int32_t;
  static constexpr Id kRoot = 0;

  // The draft is the one that "$schema" names, else `draft`.
  // Errors: kInvalidArgument with a JSON pointer.
  static absl::StatusOr<std::unique_ptr<JsonSchemaDocument>> Make(
      json::value schema, JsonSchemaDraft draft, CompileBudget* budget);

  JsonSchemaDraft draft() const { return draft_; }
  // True for drafts before 2019-09, in which "items" may be a tuple.
  bool IsOldDraft() const { return draft_ != JsonSchemaDraft::k2020_12; }
  const json::value& ValueOf(Id id) const { return *schemas_[id].value; }
  // Returns the JSON pointer of a subschema, "#/properties/a".
  const std::string& PointerOf(Id id) const { return schemas_[id].pointer; }

  // Returns the number of the subschema `value` of `parent` at `path` there,
  // "properties/a".
  absl::StatusOr<Id> Add(const json::value& value, Id parent,
                         std::string_view path);
  // Returns the number of a schema that is `value` alone.
  absl::StatusOr<Id> AddConst(const json::value& value, Id parent);
  // Returns the subschema that a keyword in `from`, "$ref" or "$dynamicRef",
  // refers to.
  // Errors: kInvalidArgument if `reference` is no string, if it is not in the
  // document, or if it depends on the instance.
  absl::StatusOr<Id> Resolve(Id from, std::string_view keyword,
                             const json::value& reference);

 private:
  struct Schema {
    const json::value* value;
    int base;  // relative references begin there
    std::string pointer;
  };
  // A schema that references can begin at.
  struct Place {
    const json::value* value = nullptr;
    int base = 0;
    std::string pointer = "#";
    bool is_dynamic = false;  // a "$dynamicAnchor"
  };

  JsonSchemaDocument(json::value schema, JsonSchemaDraft draft,
                     CompileBudget* budget)
      : draft_(draft), budget_(budget), root_(std::move(schema)) {}

  absl::Status ReadDraft();
  // Registers the identifiers and anchors in a schema.
  absl::Status Register(const json::value& value, int base,
                        const std::string& pointer);
  absl::Status RegisterNames(const json::object& schema, Place place);
  absl::Status AddAnchor(std::string_view name, Place place);
  absl::StatusOr<Id> AddAt(const Place& place);
  // Returns the place that a JSON pointer leads to.
  absl::StatusOr<Place> Follow(Place place, std::string_view pointer) const;

  JsonSchemaDraft draft_;
  CompileBudget* budget_;
  json::value root_;
  std::deque<json::value> constants_;
  std::vector<Schema> schemas_;
  std::map<std::string, Id> ids_;                           // by content
  std::map<std::pair<const json::value*, int>, Id> known_;  // by place
  std::vector<std::string> bases_;                          // URIs
  std::map<const json::value*, int> base_of_;  // if it has an identifier
  std::map<std::string, Place, std::less<>> resources_;  // by URI
  std::map<std::string, Place, std::less<>> anchors_;    // by URI#name
  std::map<std::string, int, std::less<>> num_dynamic_;  // by name
};

// Subschemas that apply to one value may nest so deep through "$ref".
inline constexpr int kMaxReferenceDepth = 200;

// Adds "additionalProperties": false to each subschema that has "properties" or
// "patternProperties" and not this keyword.
void CloseObjects(json::value* schema);

// Returns `text` as a part of a JSON pointer.
std::string EscapePointer(std::string_view text);
// Returns the path of a keyword's member or item, "properties/a".
std::string PathOf(std::string_view keyword, std::string_view key);
std::string PathOf(std::string_view keyword, size_t index);

// Returns a text that equal JSON values share: 1 and 1.0 are equal, and objects
// with the same members in another order.
std::string CanonicalJson(const json::value& value);

}  // namespace espalier
