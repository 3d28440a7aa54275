#include "request/request.h"

#include <random>

#include "base/status.h"
#include "base/wording.h"
#include "exec_request/model_description.h"
#include "request/decoder_prompt.h"
#include "request/param_checks.h"

namespace espalier {

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kDeadline:
      return "deadline";
  }
  return "";
}

absl::Status ValidateRequest(const ModelDescription& model, Request* request) {
  if (request->prompt_tokens.empty()) {
    return InvalidArgument("prompt_tokens must not be empty, got []");
  }
  RETURN_IF_ERROR(
      CheckTokens("prompt_tokens", request->prompt_tokens, model.vocab_size));
  RETURN_IF_ERROR(AppendDecoderPrompt(model, request));
  const int64_t num_tokens = std::ssize(request->prompt_tokens);
  if (model.encoder && num_tokens > model.encoder->max_source_tokens) {
    return InvalidArgument("the prompt has ", Pluralize(num_tokens, "token"),
                           ", and the model's encoder reads at most ",
                           model.encoder->max_source_tokens);
  }
  return ValidateParams(model, num_tokens, &request->params);
}

void GiveSeed(Request* request) {
  GenerationParams& params = request->params;
  if (params.seed || !DrawsAtRandom(params)) return;
  std::random_device device;
  const uint64_t bits = uint64_t{device()} << 32 | device();
  params.seed = bits % kMaxDrawnSeed;
}

}  // namespace espalier
