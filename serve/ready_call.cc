#include "serve/ready_call.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/field_error.h"
#include "base/status.h"
#include "espalier/split_text.h"
#include "openai/answer.h"
#include "openai/constrain_tool_calls.h"
#include "openai/resolve_params.h"
#include "serve/prompt_tokens.h"

namespace espalier::serve {
namespace {

// A text is tokenized before it is cut, and has at most as many tokens as
// bytes.
absl::Status CheckTruncated(const openai::Call& call, int64_t num_bytes) {
  const int64_t limit = call.limits.max_list_elements;
  if (!call.truncate_prompt_tokens || num_bytes <= limit) {
    return absl::OkStatus();
  }
  return InvalidField(
      "`truncate_prompt_tokens` must come in a body of at most ", Limit(limit),
      " bytes (--max-list-elements)", Got(num_bytes));
}

absl::StatusOr<std::vector<PromptRequest>> MakePrompts(openai::Call* call,
                                                       int64_t num_bytes,
                                                       ServedModel& model,
                                                       const Caller& caller) {
  if (caller.is_stored && call->stream) {
    return InvalidField("`stream` must be false in a batch", Got("true"));
  }
  RETURN_IF_ERROR(CheckTruncated(*call, num_bytes));
  ASSIGN_OR_RETURN(const NamedValues resolved,
                   MakeDecoderPrompt(model.generator, call));
  std::string warning =
      openai::SearchWarning(*call, model.generator.defaults());
  if (!warning.empty()) call->warnings.push_back(std::move(warning));
  if (!call->params.skip_special_tokens &&
      model.generator.tokenizer() == nullptr) {
    call->warnings.push_back(
        "skip_special_tokens false has no effect: the model has no tokenizer");
  }
  std::string without_tools = ToolsWarning(*call, model.generator);
  if (!without_tools.empty()) {
    call->warnings.push_back(std::move(without_tools));
  }
  ASSIGN_OR_RETURN(
      std::vector<PromptRequest> prompts,
      MakePromptRequests(*call, model, caller,
                         openai::AnswerId(call->api, caller.request_id),
                         resolved));
  // An echo has log-probabilities of its own; others are a default's.
  if (!call->params.prompt_logprobs) {
    call->shows_prompt_logprobs =
        std::ranges::any_of(prompts, [](const PromptRequest& prompt) {
          return prompt.parts.params.prompt_logprobs.has_value();
        });
  }
  std::string excluded = openai::SpeculationWarning(
      *call, model.defaults, model.generator.defaults(),
      model.generator.description());
  if (!excluded.empty()) call->warnings.push_back(std::move(excluded));
  std::string unconstrained =
      openai::ConstraintWarning(*call, model.defaults, prompts[0].parts.params);
  if (!unconstrained.empty()) {
    call->warnings.push_back(std::move(unconstrained));
  }
  // Prompts may take different defaults.
  for (const PromptRequest& prompt : prompts) {
    std::vector<std::string> idle =
        openai::IdleWarnings(*call, prompt.parts.params);
    if (idle.empty()) continue;
    std::ranges::move(idle, std::back_inserter(call->warnings));
    break;
  }
  const auto unparsed = std::ranges::find_if(
      prompts,
      [](const PromptRequest& prompt) { return !prompt.unparsed.empty(); });
  if (unparsed != prompts.end()) {
    call->warnings.push_back(UnparsedWarning(unparsed->unparsed));
  }
  const auto whole = std::ranges::find_if(
      prompts,
      [](const PromptRequest& prompt) { return !prompt.whole_for.empty(); });
  if (whole != prompts.end()) {
    call->warnings.push_back(WholeTextWarning(whole->whole_for));
  }
  return prompts;
}

}  // namespace

ReadyCall MakeReadyCall(openai::Api api, std::string_view body,
                        const openai::Limits& limits, ServedModel& model,
                        Caller caller) {
  ReadyCall ready;
  ready.num_body_bytes = std::ssize(body);
  absl::StatusOr<openai::Call> call = openai::ReadCall(api, body, limits);
  if (!call.ok()) {
    ready.refusal = openai::ErrorOf(call.status());  // in its words already
    return ready;
  }
  ready.call = *std::move(call);
  ready.call.tool_calls.format = model.tool_call_format;
  absl::Status checked = CheckServesTexts(model, ready.call.model);
  if (checked.ok()) checked = openai::ConstrainToolCalls(&ready.call);
  if (!checked.ok()) {
    ready.refusal = openai::ErrorOf(checked, &ready.call);
    return ready;
  }
  if (!ready.call.request_id.empty()) {
    caller.request_id = ready.call.request_id;
  }
  absl::StatusOr<std::vector<PromptRequest>> prompts =
      MakePrompts(&ready.call, ready.num_body_bytes, model, caller);
  if (prompts.ok()) {
    ready.prompts = *std::move(prompts);
  } else {
    ready.refusal = openai::ErrorOf(prompts.status(), &ready.call);
  }
  return ready;
}

}  // namespace espalier::serve
