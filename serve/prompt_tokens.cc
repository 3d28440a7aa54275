#include "serve/prompt_tokens.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "openai/error.h"
#include "openai/resolve_params.h"
#include "request/decoder_prompt.h"
#include "text/chat/final_message.h"
#include "text/prompt_template.h"

namespace espalier::serve {
namespace {

// Returns the length of the longest prompt that leaves room for the call's
// output.
int64_t LongestPrompt(const ModelDescription& model, const openai::Call& call) {
  if (model.encoder) return model.max_prompt_tokens();
  const int64_t num_new =
      std::max<int64_t>(call.params.max_new_tokens.value_or(1), 1);
  const int64_t num_decoder = std::ssize(call.params.decoder_prompt_tokens);
  return std::max<int64_t>(model.max_context - num_new - num_decoder, 1);
}

// Forces the language that the call's template translates into.
void ForceLanguage(const Generator& generator, openai::Call* call) {
  if (call->template_name.empty()) return;
  const auto chosen = generator.prompt_template(call->template_name);
  // Another error is that of the prompt.
  if (!chosen.ok()) return;
  const std::string_view param = ForceFirstOutput(
      generator.description(), (*chosen)->first_output, &call->params);
  if (!param.empty()) call->given.push_back({param, "template"});
}

}  // namespace

PromptTokensOptions PromptTokensOptionsOf(const openai::Call& call) {
  return {.add_special_tokens = call.add_special_tokens,
          .template_name = call.template_name,
          .parse_special = call.parse_special};
}

std::string UnparsedWarning(std::string_view name) {
  return Concat("prompt has the name of a special token as text, ",
                ShownInQuotes(name), "; with parse_special true it is that ",
                "token");
}

std::string ToolsWarning(const openai::Call& call, const Generator& generator) {
  if (!call.chat || call.chat->tools.is_null()) return "";
  const absl::StatusOr<const ChatPrompts*> prompts = generator.chat_prompts();
  if (!prompts.ok()) return "";
  const std::string& source = (*prompts)->chat_template().source();
  if (source.find("tools") != source.npos) return "";
  return "tools are not in the prompt: the model's chat template does not "
         "mention them";
}

absl::StatusOr<FramedTokens> TextTokens(const std::string& text,
                                        const PromptTokensOptions& options,
                                        const Generator& generator) {
  FramedTokens prompt;
  const auto make = [&](Prompt made) -> absl::Status {
    if (options.parse_special) made = std::move(made).WithSpecialParsed();
    ASSIGN_OR_RETURN(prompt.tokens,
                     generator.MakePrompt(std::move(made), options.max_tokens));
    return absl::OkStatus();
  };
  const auto find_unparsed = [&] {
    if (options.parse_special) return;
    const auto own = std::span(prompt.tokens).subspan(prompt.num_before);
    prompt.unparsed = generator.tokenizer()->UnparsedSpecial(
        text, own.first(own.size() - prompt.num_after));
  };
  if (!options.add_special_tokens.value_or(true)) {
    RETURN_IF_ERROR(make(Prompt::Raw(text)));
    find_unparsed();
    return prompt;
  }
  const absl::StatusOr<const PromptTemplate*> chosen =
      generator.prompt_template(options.template_name);
  if (absl::IsNotFound(chosen.status())) {
    return openai::RefuseField("template",
                               "template: " + Message(chosen.status()));
  }
  RETURN_IF_ERROR(chosen.status());
  RETURN_IF_ERROR(make(Prompt::Templated(text, options.template_name)));
  prompt.num_before = std::ssize((*chosen)->before_text);
  prompt.num_after = std::ssize((*chosen)->after_text);
  find_unparsed();
  return prompt;
}

absl::StatusOr<FramedTokens> ChatTokens(const ChatInputs& chat,
                                        const PromptTokensOptions& options,
                                        const Generator& generator) {
  const absl::StatusOr<const ChatPrompts*> prompts = generator.chat_prompts();
  if (absl::IsFailedPrecondition(prompts.status())) {
    return openai::RefuseField(
        "messages", Concat(Message(prompts.status()),
                           "; /v1/completions takes a prompt without one"));
  }
  RETURN_IF_ERROR(prompts.status());
  FramedTokens prompt;
  ASSIGN_OR_RETURN(prompt.tokens, (*prompts)->Make(chat, options.max_tokens));
  std::vector<TokenId>& tokens = prompt.tokens;
  const std::optional<TokenId> bos = generator.tokenizer()->bos_id();
  const bool adds_bos = options.add_special_tokens.value_or(false) &&
                        bos.has_value() &&
                        (tokens.empty() || tokens.front() != *bos);
  if (adds_bos) {
    tokens.insert(tokens.begin(), *bos);
    prompt.num_before = 1;
  }
  return prompt;
}

absl::StatusOr<std::string> FinalMessageOf(const ChatInputs& chat,
                                           const Generator& generator) {
  ASSIGN_OR_RETURN(const ChatPrompts* prompts, generator.chat_prompts());
  ASSIGN_OR_RETURN(const jinja::Text rendered, prompts->Render(chat));
  return FinalContent(
      rendered, chat.messages.back().get_object().at("content").get_string());
}

absl::StatusOr<std::vector<TokenId>> TruncatePrompt(
    const openai::Call& call, const ModelDescription& model,
    FramedTokens prompt) {
  std::vector<TokenId>& tokens = prompt.tokens;
  if (!call.truncate_prompt_tokens.has_value()) return std::move(tokens);
  int64_t most = *call.truncate_prompt_tokens;
  if (most < 0) most = LongestPrompt(model, call);
  const int64_t extra = std::ssize(tokens) - most;
  if (extra <= 0) return std::move(tokens);
  const int64_t num_around = prompt.num_before + prompt.num_after;
  if (most <= num_around) {
    return InvalidField("`truncate_prompt_tokens` must be at least ",
                        Limit(num_around + 1), ", for the ",
                        Pluralize(num_around, "token"),
                        " that stand around a text and one of it", Got(most));
  }
  const bool keeps_end = call.truncation_side == openai::TruncationSide::kLeft;
  const auto first = keeps_end ? tokens.begin() + prompt.num_before
                               : tokens.end() - prompt.num_after - extra;
  tokens.erase(first, first + extra);
  return std::move(tokens);
}

absl::StatusOr<NamedValues> MakeDecoderPrompt(const Generator& generator,
                                              openai::Call* call) {
  ForceLanguage(generator, call);
  if (call->params.decoder_prompt.empty()) return NamedValues();
  ASSIGN_OR_RETURN(
      NamedValues taken,
      ResolveDecoderPrompt(generator.tokenizer().get(), generator.description(),
                           generator.defaults(), &call->params));
  call->given.push_back({"decoder_prompt_tokens", "decoder_prompt"});
  return taken;
}

absl::StatusOr<std::vector<TokenId>> DecoderTokens(
    openai::Call call, const openai::ServerDefaults& defaults,
    const Generator& generator) {
  // With an encoder its source takes no room from them.
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
