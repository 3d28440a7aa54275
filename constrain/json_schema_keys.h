// JsonSchemaKeys: the keys that subschemas name, by which members of objects
// are ordered.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "constrain/json_assertions.h"
#include "constrain/json_schema_document.h"

namespace espalier {

class JsonSchemaKeys {
 public:
  using Id = JsonSchemaDocument::Id;

  // Both outlive this.
  JsonSchemaKeys(JsonSchemaDocument* document, JsonAssertions* assertions)
      : document_(*document), assertions_(*assertions) {}

  // Returns numbers of JsonAssertions::AddKey, each once: "properties" in the
  // order of the text, then keys of other keywords and of the subschemas that
  // apply to the same object, then "required". The result lives as long as
  // this.
  // Errors: kInvalidArgument of a reference, or if the budget is spent.
  absl::StatusOr<const std::vector<int64_t>*> Of(Id id);

 private:
  absl::Status Add(Id id, int depth, std::vector<int64_t>* keys,
                   std::set<int64_t>* seen, std::set<Id>* visited);

  JsonSchemaDocument& document_;
  JsonAssertions& assertions_;
  std::map<Id, std::vector<int64_t>> known_;
};

}  // namespace espalier
