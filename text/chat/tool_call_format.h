// ToolCallFormat: the format in which a model writes calls of tools in its
// answer. A model is trained on one format. ToolCallParser (tool_call_parser.h)
// reads the formats that most models use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

enum class ToolCallFormat {
  kNone,        // no text is read as a call
  kHermes,      // <tool_call>{"name": N, "arguments": {...}}</tool_call>
  kLlama3Json,  // {"name": N, "parameters": {...}} and nothing in front
  kMistral,     // [TOOL_CALLS] [{"name": N, "arguments": {...}}, ...], or
                // [TOOL_CALLS]N[ARGS]{...} for each call
};

// Returns the format named "hermes", "llama3_json", "mistral" or "none";
// nullopt for other names.
std::optional<ToolCallFormat> ToolCallFormatNamed(std::string_view name);
std::string_view NameOf(ToolCallFormat format);

// Returns the format of a model whose chat template is `source`: the one whose
// marks, such as <tool_call>, the template writes. kNone if it does not mention
// tools, writes no marks, or those of an unsupported format. A Llama 3 is also
// recognised by its special token <|python_tag|>, which not all of its
// templates mention.
ToolCallFormat ToolCallFormatOf(std::string_view source,
                                const Tokenizer& tokenizer);

// A mark of a format that is a special token of the model, so that generated
// text does not show it.
struct ToolCallMark {
  TokenId token = 0;
  std::string_view spelling;
  // Stands for the token in the texts of constraints: no byte of UTF-8, and
  // another one for each mark.
  char byte = 0;
};
std::vector<ToolCallMark> SpecialMarksOf(ToolCallFormat format,
                                         const Tokenizer& tokenizer);
// Returns the marks of all formats.
std::vector<ToolCallMark> SpecialMarksOf(const Tokenizer& tokenizer);

}  // namespace espalier
