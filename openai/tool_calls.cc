#include "openai/tool_calls.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/answer_parts.h"
#include "request/decoder_prompt.h"

namespace espalier::openai {

std::string ToolCallId(const AnswerHead& head, int64_t choice_index,
                       size_t call_idx) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kSize = 9;
  // Fixed, because ids are part of results: digits of pi and the golden ratio.
  constexpr HashKey kIdKey = {.start = 0x243F6A8885A308D3,
                              .multiplier = 0x9E3779B97F4A7C15};
  uint64_t hash = HashOf(
      Concat(head.id, " ", head.created, " ", choice_index, " ", call_idx),
      kIdKey);
  std::string id;
  while (id.size() < kSize) {
    id += kDigits[hash % kDigits.size()];
    hash /= kDigits.size();
  }
  return id;
}

bool ReadsToolCalls(const Call& call) {
  return call.tool_calls.format != ToolCallFormat::kNone &&
         !call.tool_calls.tool_names.empty();
}

std::optional<ToolCallStream> ToolCallsOf(const Call& call,
                                          const PromptParts& prompt,
                                          const Tokenizer* tokenizer) {
  if (!ReadsToolCalls(call) || tokenizer == nullptr) return std::nullopt;
  return std::optional<ToolCallStream>(std::in_place, call.tool_calls,
                                       *tokenizer,
                                       TextBeginOf(prompt, *tokenizer));
}

void DropUnwanted(const Call& call, ToolCallText* found) {
  if (call.parallel_tool_calls) return;
  std::erase_if(found->calls,
                [](const ToolCallPart& part) { return part.call_idx > 0; });
}

void AppendToolCalls(std::span<const ToolCallPart> parts,
                     const AnswerHead& head, int64_t choice_index,
                     bool is_chunk, std::string* out) {
  const auto append = [&](const ToolCallPart& part) {
    *out += '{';
    if (is_chunk) {
      AppendField(R"("index":)", static_cast<int64_t>(part.call_idx), out);
      *out += ',';
    }
    if (!part.name.empty()) {
      const std::string id = ToolCallId(head, choice_index, part.call_idx);
      AppendField(R"("id":)", std::string_view(id), out);
      AppendField(R"(,"type":"function","function":{"name":)",
                  std::string_view(part.name), out);
      *out += ',';
    } else {
      *out += R"("function":{)";
    }
    AppendField(R"("arguments":)", std::string_view(part.arguments), out);
    *out += "}}";
  };
  AppendList(parts, append, out);
}

}  // namespace espalier::openai
