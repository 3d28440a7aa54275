#include "serve/prompt_tokens.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "openai/error.h"
#include "request/decoder_prompt.h"

namespace espalier::serve {
namespace {

// The longest prompt that leaves room for what the call wants.
int64_t LongestPrompt(const ModelDescription& model, const openai::Call& call) {
  if (model.encoder) return model.max_prompt_tokens();
  const int64_t num_new = call.params.max_new_tokens.value_or(1);
  return std::max<int64_t>(model.max_context - std::max<int64_t>(num_new, 1),
                           1);
}

}  // namespace

PromptTokensOptions PromptTokensOptionsOf(const openai::Call& call) {
  return {.add_special_tokens = call.add_special_tokens,
          .template_name = call.template_name};
}

absl::StatusOr<std::vector<TokenId>> TextTokens(
    const std::string& text, const PromptTokensOptions& options,
    const Generator& generator) {
  if (!options.add_special_tokens.value_or(true)) {
    return generator.MakePrompt(Prompt::Raw(text), options.max_tokens);
  }
  if (options.template_name.empty()) {
    return generator.MakePrompt(Prompt(text), options.max_tokens);
  }
  absl::StatusOr<std::vector<TokenId>> tokens = generator.MakePrompt(
      Prompt::Templated(text, options.template_name), options.max_tokens);
  if (!absl::IsNotFound(tokens.status())) return tokens;
  return openai::RefuseField("template",
                             "template: " + Message(tokens.status()));
}

absl::StatusOr<std::vector<TokenId>> ChatTokens(
    const ChatInputs& chat, const PromptTokensOptions& options,
    const Generator& generator) {
  const absl::StatusOr<const ChatPrompts*> prompts = generator.chat_prompts();
  if (absl::IsFailedPrecondition(prompts.status())) {
    return openai::RefuseField(
        "messages", Concat(Message(prompts.status()),
                           "; /v1/completions takes a prompt without one"));
  }
  RETURN_IF_ERROR(prompts.status());
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                   (*prompts)->Make(chat, options.max_tokens));
  const std::optional<TokenId> bos = generator.tokenizer()->bos_id();
  const bool adds_bos = options.add_special_tokens.value_or(false) &&
                        bos.has_value() &&
                        (tokens.empty() || tokens.front() != *bos);
  if (adds_bos) tokens.insert(tokens.begin(), *bos);
  return tokens;
}

void TruncatePrompt(const openai::Call& call, const ModelDescription& model,
                    std::vector<TokenId>* tokens) {
  if (!call.truncate_prompt_tokens.has_value()) return;
  int64_t most = *call.truncate_prompt_tokens;
  if (most < 0) most = LongestPrompt(model, call);
  const int64_t extra = std::ssize(*tokens) - most;
  if (extra <= 0) return;
  if (call.truncation_side == openai::TruncationSide::kLeft) {
    tokens->erase(tokens->begin(), tokens->begin() + extra);
  } else {
    tokens->resize(most);
  }
}

absl::StatusOr<NamedValues> MakeDecoderPrompt(const Generator& generator,
                                              openai::Call* call) {
  return ResolveDecoderPrompt(generator.tokenizer().get(),
                              generator.description(), generator.defaults(),
                              &call->params);
}

absl::StatusOr<std::vector<TokenId>> DecoderTokens(
    openai::Call call, const openai::ServerDefaults& defaults,
    const Generator& generator) {
  // Where there is an encoder its source takes no room from them, and without
  // one they are refused.
  constexpr int kShortestPrompt = 1;
  const ModelDescription& model = generator.description();
  RETURN_IF_ERROR(MakeDecoderPrompt(generator, &call).status());
  GenerationParams resolved =
      openai::ResolveParams(call, defaults, generator.defaults(), model,
                            kShortestPrompt)
          .params;
  // The decoder prompt alone: other defaults must not make /tokenize fail.
  GenerationParams params;
  params.decoder_prompt_tokens = std::move(resolved.decoder_prompt_tokens);
  params.forced_bos_token_id = call.params.forced_bos_token_id;
  RETURN_IF_ERROR(ValidateParams(model, kShortestPrompt, &params));
  return DecoderPromptOf(model, params);
}

}  // namespace espalier::serve
