// CompileJsonSchema: the JSON texts of the values that satisfy a JSON Schema,
// of draft 2020-12, 7, 6 or 4, as an automaton.
//
//   ASSIGN_OR_RETURN(const ByteAutomaton points,
//                    CompileJsonSchema(R"({"type": "array", "maxItems": 2,
//                                          "items": {"type": "integer"}})"));
//
// Each text of the language satisfies the schema. Not each value that does has
// a text: a value is written in one way, except for spaces.
//
// - Objects have the keys that the schema names in its order, then others. No
//   named key comes twice.
// - After "," and ":" one space may follow, or white space stands between the
//   parts of a text as a pattern says, if the options say so.
// - Strings are written in one way (json_string_language.h), and so are
//   numbers where the schema says more than "number": no exponent, no zero
//   that could go, so that 1.0 is 1.
// - Values of a schema that refers to itself, such as the one of any value,
//   {}, nest at most `max_depth` levels beyond the first. In a language that
//   may have calls (CompileJsonSchemaWithCalls), the values of references that
//   lead back to their subschema nest at most `max_calls` levels.
// - Some formats are enforced by a part of their strings (json_format.h).
//
// Subschemas are boolean formulas of assertions about a value (json_machine.h),
// from which the automaton is made, so that a complement is one of values, not
// of texts: these rules leave out texts and add none.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "constrain/json_schema_document.h"
#include "constrain/pushdown_automaton.h"

namespace espalier {

struct JsonSchemaOptions {
  // The draft of a schema without "$schema".
  JsonSchemaDraft draft = JsonSchemaDraft::k2020_12;
  bool has_spaces = true;
  // In place of `has_spaces`: a regular expression of the white space after an
  // opening bracket, before a closing one, and around "," and ":"
  // (json_whitespace.h). An empty array or object has it once.
  std::optional<std::string> whitespace = {};
  // Objects have no key but those of the schema, as if each subschema with
  // "properties" or "patternProperties" and without "additionalProperties" had
  // it as false.
  bool disable_additional_properties = false;
  int max_depth = 3;
  int max_calls = PushdownAutomaton::kMaxDepth;
  // With calls, values of {} are called, too, whatever the references are.
  bool calls_any_value = false;
  // So are arrays and objects that are used more than once.
  bool calls_repeated_values = false;
  // With calls: strings of at most a greater length have a counter, and those
  // of at least more than `max_unrolled_least`, if all such lengths together
  // exceed `max_unrolled_lengths`, each as often as it is used and as large as
  // what it is about.
  int64_t max_unrolled_length = 16;
  int64_t max_unrolled_least = 3000;
  int64_t max_unrolled_lengths = 1024;
  // With calls: only references that lead back are called, however large the
  // automaton is.
  bool only_recursion_is_called = false;
};

// Errors: kInvalidArgument with the JSON pointer of the keyword that cannot be
// enforced, or of the subschema that exceeds `limits`; or if no value satisfies
// the schema, or none that has a text: then with the pointer of a subschema and
// the reason. Those of `whitespace` begin with its name.
absl::StatusOr<ByteAutomaton> CompileJsonSchema(
    json::value schema, const JsonSchemaOptions& options = {},
    const CompileLimits& limits = {});
absl::StatusOr<ByteAutomaton> CompileJsonSchema(
    std::string_view schema, const JsonSchemaOptions& options = {},
    const CompileLimits& limits = {});
// As the first. Where references lead back to their subschema, the values of
// such a subschema are called, in place of copies for a few levels. So are
// strings with a great "maxLength" or "minLength", which have a counter.
// Without such references and strings the language is a ByteAutomaton.
absl::StatusOr<GrammarLanguage> CompileJsonSchemaWithCalls(
    std::string_view schema, const JsonSchemaOptions& options = {},
    const CompileLimits& limits = {});
// As the first, as a part of another compilation.
absl::StatusOr<ByteAutomaton> CompileJsonSchema(
    json::value schema, const JsonSchemaOptions& options,
    CompileBudget* budget);

}  // namespace espalier
