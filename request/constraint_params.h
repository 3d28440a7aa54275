// ConstraintParams: the language of texts that the output of a request is
// restricted to (docs/constraints.md).
#pragma once

#include <optional>
#include <string>

#include "base/shared_list.h"

namespace espalier {

// Exactly one of the languages is set.
struct ConstraintParams {
  std::optional<std::string> regex = {};               // it matches as a whole
  std::optional<SharedList<std::string>> choice = {};  // it is one of these
  // A JSON Schema: the text is JSON of a value that satisfies it
  // (constrain/json_schema.h).
  std::optional<std::string> json_schema = {};
  // A grammar in GBNF: the text is one of its rule "root"
  // (constrain/gbnf_language.h).
  std::optional<std::string> grammar = {};
  // The text is calls of some functions in a format of models: a JSON object
  // (request/tool_call_language.h).
  std::optional<std::string> tool_calls = {};
  // With a schema: one space may follow each "," and ":".
  bool has_spaces = true;

  friend bool operator==(const ConstraintParams&,
                         const ConstraintParams&) = default;
};

}  // namespace espalier
