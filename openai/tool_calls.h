// Calls of tools in the answer to a chat, as OpenAI's API writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "openai/answer.h"
#include "openai/call.h"
#include "text/chat/tool_call_stream.h"

namespace espalier::openai {

// Whether calls of tools are looked for in the answer.
bool ReadsToolCalls(const Call& call);

// Finds the calls of one choice; nothing if none are looked for.
std::optional<ToolCallStream> ToolCallsOf(const Call& call,
                                          const PromptParts& prompt,
                                          const Tokenizer* tokenizer);

// Drops what the call does not want: all but the first without
// parallel_tool_calls.
void DropUnwanted(const Call& call, ToolCallText* found);

// [{"id", "type": "function", "function": {"name", "arguments"}}, ...]. In
// events each has its "index", and parts after the first of a call have no id
// and no name. An id is nine letters and digits, which Mistral's templates
// insist on; it is the same in a stream and in a whole answer.
void AppendToolCalls(std::span<const ToolCallPart> parts,
                     const AnswerHead& head, int64_t choice_index,
                     bool is_chunk, std::string* out);

}  // namespace espalier::openai
