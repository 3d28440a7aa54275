// ToolCallLanguage: the texts in which a model calls some functions in its own
// format, as an automaton. A text of the language is one that ToolCallParser
// (text/chat/tool_call_parser.h) reads as calls of these functions, with
// arguments that satisfy their JSON Schemas.
//
//   <tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>
//
// A call has its name first, and spaces where the format has them or none. A
// mark that is a special token of the model is one byte in the texts
// (ToolCallMark), so that nothing else spells it.
//
// Thread safety: values; functions without state.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "text/chat/tool_call_format.h"

namespace espalier {

struct ToolCallRules {
  struct Function {
    std::string name;
    json::value parameters;  // a JSON Schema
  };
  ToolCallFormat format = ToolCallFormat::kHermes;
  std::vector<Function> functions = {};  // one at least
  // True: a text may come before the calls, or in their place. It has no mark
  // that begins a call; with Llama 3 it does not begin with "{".
  bool has_text = false;
  // A JSON Schema: in place of the calls there may be JSON of a value that
  // satisfies it, without such a mark. Not with Llama 3, whose calls have none.
  std::optional<json::value> text_schema = {};
  bool is_parallel = true;  // false: one call at most
};

// Reads the object
//
//   {"format": "hermes", "text": false, "parallel": true,
//    "functions": [{"name": "f", "parameters": {"type": "object"}}]}
//
// of which text, parallel and parameters may be left out. "text" may be
// {"json_schema": S}.
// Errors: kInvalidArgument naming the member of `field` and the value.
absl::StatusOr<ToolCallRules> ReadToolCallRules(std::string_view field,
                                                const JsonText& json);

// `marks` are those of the format that are special tokens.
// Errors: kInvalidArgument naming the member of the field
// "constraint.tool_calls": a schema that cannot be enforced, or that no object
// satisfies; a name that the format cannot have; what exceeds `limits`, which
// hold for all functions together.
absl::StatusOr<ByteAutomaton> CompileToolCalls(
    const ToolCallRules& rules, std::span<const ToolCallMark> marks,
    const CompileLimits& limits = {});

}  // namespace espalier
