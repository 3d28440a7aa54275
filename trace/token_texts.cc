#include "trace/token_texts.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "request/decoder_prompt.h"

namespace espalier {
namespace {

// Sets the text of the decoder prompt, if the request has one.
void AddDecoderPrompt(const Tokenizer& tokenizer, json::object* params) {
  const json::value* const ids = params->if_contains("decoder_prompt_tokens");
  if (ids == nullptr) return;
  std::vector<int64_t> tokens;
  for (const json::value& id : ids->as_array()) {
    tokens.push_back(id.as_int64());
  }
  const absl::StatusOr<std::string> text = DecoderPromptText(tokenizer, tokens);
  if (!text.ok() || !IsUtf8(*text)) return;
  (*params)["decoder_prompt"] = json::string(text->data(), text->size());
}

}  // namespace

void AddTokenTexts(const Tokenizer& tokenizer, TraceEvent* event) {
  if (auto* candidate = std::get_if<TraceCandidate>(event)) {
    candidate->text = tokenizer.Spelling(candidate->token);
  } else if (auto* request = std::get_if<TraceRequest>(event)) {
    absl::StatusOr<std::string> text = tokenizer.Decode(request->prompt_tokens);
    if (text.ok()) request->prompt = *std::move(text);
    AddDecoderPrompt(tokenizer, &request->params);
  }
}

}  // namespace espalier
