// ToolCallFormat: how a model writes calls of tools in its answer. Each model
// was trained on one; the formats that most of them use are read back
// (tool_call_parser.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

enum class ToolCallFormat {
  kNone,        // calls are not looked for
  kHermes,      // <tool_call>{"name": N, "arguments": {...}}</tool_call>
  kLlama3Json,  // {"name": N, "parameters": {...}} and nothing in front
  kMistral,     // [TOOL_CALLS] [{"name": N, "arguments": {...}}, ...], or
                // [TOOL_CALLS]N[ARGS]{...} for each call
};

// "hermes", "llama3_json", "mistral" or "none"; nothing for other names.
std::optional<ToolCallFormat> ToolCallFormatNamed(std::string_view name);
std::string_view NameOf(ToolCallFormat format);

// Returns the format of a model whose chat template is `source`: the one whose
// marks the template writes. kNone if it writes no marks, or those of an
// unsupported format. A Llama 3 is also recognised by its special token
// <|python_tag|>, which not all of its templates mention.
ToolCallFormat ToolCallFormatOf(std::string_view source,
                                const Tokenizer& tokenizer);

// A mark of a format that is a special token of the model: it spells nothing in
// what is generated.
struct ToolCallMark {
  TokenId token = 0;
  std::string_view spelling;
};
std::vector<ToolCallMark> SpecialMarksOf(ToolCallFormat format,
                                         const Tokenizer& tokenizer);

}  // namespace espalier
