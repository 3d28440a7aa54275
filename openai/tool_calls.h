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

// True if tool calls are parsed from the answer.
bool ReadsToolCalls(const Call& call);

// Returns a parser for the tool calls of one choice; nullopt if none are
// parsed.
std::optional<ToolCallStream> ToolCallsOf(const Call& call,
                                          const PromptParts& prompt,
                                          const Tokenizer* tokenizer);

// Drops tool calls after the first unless parallel_tool_calls is set.
void DropUnwanted(const Call& call, ToolCallText* found);

// Nine letters and digits, as Mistral's templates require. They follow from
// `head`, the choice and the call's index alone, so they are the same in a
// stream and in a whole answer.
std::string ToolCallId(const AnswerHead& head, int64_t choice_index,
                       size_t call_idx);

// Appends [{"id", "type": "function", "function": {"name", "arguments"}}, ...].
// In events each has its "index", and later parts of a call have no id and no
// name.
void AppendToolCalls(std::span<const ToolCallPart> parts,
                     const AnswerHead& head, int64_t choice_index,
                     bool is_chunk, std::string* out);

}  // namespace espalier::openai
