#include "trace/token_texts.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"

namespace espalier {

void AddTokenTexts(const Tokenizer& tokenizer, TraceEvent* event) {
  if (auto* candidate = std::get_if<TraceCandidate>(event)) {
    candidate->text = tokenizer.Spelling(candidate->token);
  } else if (auto* request = std::get_if<TraceRequest>(event)) {
    absl::StatusOr<std::string> text = tokenizer.Decode(request->prompt_tokens);
    if (text.ok()) request->prompt = *std::move(text);
  }
}

}  // namespace espalier
