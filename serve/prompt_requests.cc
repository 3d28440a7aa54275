#include "serve/prompt_requests.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/status.h"
#include "beam/strategy/selection_options.h"
#include "openai/resolve_params.h"
#include "request/decoder_prompt.h"
#include "request/param_checks.h"
#include "request/validate_params.h"
#include "serve/prompt_tokens.h"

namespace espalier::serve {
namespace {

// Those that will be cut may be longer than the context.
PromptTokensOptions TokensOptionsOf(const openai::Call& call,
                                    const ModelDescription& model) {
  PromptTokensOptions options = PromptTokensOptionsOf(call);
  if (!call.truncate_prompt_tokens.has_value()) {
    options.max_tokens = model.max_prompt_tokens();
  }
  return options;
}

absl::StatusOr<std::vector<TokenId>> TokensOf(
    const openai::PromptInput& input, const PromptTokensOptions& options,
    const Generator& generator) {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&input)) {
    return *tokens;
  }
  return TextTokens(std::get<std::string>(input), options, generator);
}

// Calls of batches wait behind all others; their own priorities order them.
void PutBehindOthers(GenerationParams* params) {
  constexpr int64_t kBehind = int64_t{1} << 51;
  constexpr int64_t kMost = int64_t{1} << 50;
  params->priority = kBehind + std::clamp(params->priority, -kMost, kMost);
}

// The request that a prompt of a call makes.
absl::StatusOr<PromptRequest> MakePromptRequest(const openai::Call& call,
                                                std::vector<TokenId> tokens,
                                                const ServedModel& model,
                                                const Caller& caller,
                                                const std::string& id) {
  const Generator& generator = model.generator;
  if (call.truncate_prompt_tokens) {
    // Before the cut, so that an error names the id's place in the call, and
    // ids that are cut off are checked, too.
    RETURN_IF_ERROR(CheckTokens("prompt_tokens", tokens,
                                generator.description().vocab_size));
  }
  TruncatePrompt(call, generator.description(), &tokens);
  openai::ResolvedParams resolved =
      openai::ResolveParams(call, model.defaults, generator.defaults(),
                            generator.description(), std::ssize(tokens));
  RETURN_IF_ERROR(openai::CheckLimits(call, resolved.params, &model.defaults));
  RETURN_IF_ERROR(
      openai::CheckRoom(call, resolved.params, generator.description()));
  GenerationRequest request{tokens, std::move(resolved.params)};
  request.takes_defaults = false;
  RETURN_IF_ERROR(AddKey(caller, &request.params));
  if (caller.is_stored) PutBehindOthers(&request.params);
  PromptRequest prompt;
  prompt.parts.tokens = std::move(tokens);
  prompt.parts.params = request.params;
  prompt.parts.defaults = std::move(resolved.defaults);
  ASSIGN_OR_RETURN(prompt.engine, generator.Prepare(std::move(request)));
  prompt.engine.request.caller_id = TraceId(caller, id);
  return prompt;
}

// Refuses an echo with log-probabilities, those of the prompt included, of a
// model that has none of prompts. The call's own prompt_logprobs is named by
// the checks of params.
absl::Status CheckEcho(const openai::Call& call,
                       const ModelDescription& model) {
  const bool is_wrong = call.echo && !call.shows_prompt_logprobs &&
                        call.params.prompt_logprobs.has_value() &&
                        model.encoder.has_value();
  if (!is_wrong) return absl::OkStatus();
  return InvalidArgument("echo must be false with ",
                         call.NameOf("prompt_logprobs"),
                         " for a model with an encoder, whose prompts have no ",
                         "log-probabilities, got true");
}

// What is echoed in front of a text: what the text goes on from. After an
// encoder that is the decoder prompt, as its tokens spell it; the source is no
// beginning of what is generated. Else the prompt: as the call has it, or if it
// was given or cut as tokens, what the engine got.
absl::StatusOr<std::string> EchoOf(const openai::PromptInput& input,
                                   bool is_whole,
                                   const openai::PromptParts& parts,
                                   const Generator& generator) {
  const Tokenizer* const tokenizer = generator.tokenizer().get();
  const auto* const text = std::get_if<std::string>(&input);
  const bool has_encoder = generator.description().encoder.has_value();
  if (text != nullptr && is_whole && !has_encoder) return *text;
  if (tokenizer == nullptr) return std::string();
  if (!has_encoder) return tokenizer->Decode(parts.tokens);
  return DecoderPromptText(*tokenizer, parts.params.decoder_prompt_tokens);
}

// Refuses what 429 would have a client try again for ever: more prompt tokens
// than the queue ever holds. A single prompt is checked by QueueLimits.
absl::Status CheckMayWait(const std::vector<PromptRequest>& requests,
                          int64_t max_waiting_tokens) {
  int64_t num_tokens = 0;
  for (const PromptRequest& request : requests) {
    num_tokens += std::ssize(request.parts.tokens) +
                  std::ssize(request.parts.params.decoder_prompt_tokens);
  }
  if (max_waiting_tokens == 0 || requests.size() == 1 ||
      num_tokens <= max_waiting_tokens) {
    return absl::OkStatus();
  }
  return InvalidArgument("prompt has ", num_tokens, " tokens in ",
                         requests.size(), " prompts, and at most ",
                         max_waiting_tokens,
                         " may wait (--max-waiting-tokens)");
}

// Refuses max_tokens that some prompts leave too little room for, in the words
// of the one that leaves least: who gives as many as that has room for is right
// about all. Of a single prompt the engine says it.
absl::Status CheckLengths(const openai::Call& call,
                          const ModelDescription& model,
                          const std::vector<PromptRequest>& requests) {
  if (requests.size() == 1) return absl::OkStatus();
  const auto num_tokens = [](const PromptRequest& request) {
    return std::ssize(request.parts.tokens);
  };
  const auto longest = std::ranges::max_element(requests, {}, num_tokens);
  GenerationParams lengths;
  lengths.max_new_tokens = longest->parts.params.max_new_tokens;
  lengths.decoder_prompt_tokens = longest->parts.params.decoder_prompt_tokens;
  lengths.prompt_logprobs = longest->parts.params.prompt_logprobs;
  return OfPrompt(ValidateLengths(model, num_tokens(*longest), &lengths),
                  longest - requests.begin(), call);
}

}  // namespace

std::string LogNote(const Caller& caller) {
  const std::string id = Concat("id=", caller.request_id);
  return caller.key < 0 ? id : Concat(id, " key=", caller.key);
}

std::string TraceId(const Caller& caller, std::string_view id) {
  if (caller.key < 0) return std::string(id);
  return Concat("key ", caller.key, " ", id);
}

absl::Status AddKey(const Caller& caller, GenerationParams* params) {
  if (caller.key < 0) return absl::OkStatus();
  const std::string of_key = Concat("key ", caller.key, " ");
  const auto add = [&](std::string_view field, size_t max_bytes,
                       std::string* value) {
    if (value->size() + of_key.size() > max_bytes) {
      return InvalidArgument(field, " must have at most ",
                             max_bytes - of_key.size(),
                             " bytes beside an API key, got ", value->size());
    }
    *value = of_key + *value;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(add("tenant", kMaxTenantBytes, &params->tenant));
  if (!params->prefix_cache) return absl::OkStatus();
  return add("cache_salt", kMaxCacheSaltBytes, &params->cache_salt);
}

void TakeRequestId(const std::string& id, Caller* caller) {
  caller->request_id = id;
  for (http::Header& header : caller->headers) {
    if (header.name == "x-request-id") header.value = id;
  }
}

absl::Status OfPrompt(const absl::Status& status, size_t prompt,
                      const openai::Call& call) {
  if (!call.prompts_are_list) return status;
  const std::string name = Concat("prompt[", prompt, "]");
  const std::string message = Message(status);
  // Of their number (CheckLimits), which is no one's.
  if (message.find(" of all prompts") != message.npos) return status;
  for (const std::string_view field :
       {"prompt", "prompt_tokens", "the prompt"}) {
    if (!message.starts_with(field)) continue;
    const std::string_view rest =
        std::string_view(message).substr(field.size());
    if (rest.starts_with(' ') || rest.starts_with('[')) {
      return WithMessage(status, Concat(name, rest));
    }
  }
  if (call.prompts.size() == 1) return status;
  // The queue's errors, which pass, count the tokens of all that wait.
  const bool is_of_request =
      status.code() != absl::StatusCode::kResourceExhausted ||
      IsPermanent(status);
  const bool speaks_of_it = message.find("prompt token") != message.npos ||
                            message.starts_with("no token is possible");
  return is_of_request && speaks_of_it
             ? WithMessage(status, Concat(message, "; of ", name))
             : status;
}

absl::StatusOr<std::vector<PromptRequest>> MakePromptRequests(
    const openai::Call& call, const ServedModel& model, const Caller& caller,
    const std::string& id) {
  const int64_t max_open = model.generator.max_open();
  if (std::ssize(call.prompts) > max_open) {
    // It would be told to come back for ever.
    return InvalidArgument("prompt has ", call.prompts.size(),
                           " prompts, each a request, and at most ", max_open,
                           " may run and wait (--max-running, --max-waiting)");
  }
  RETURN_IF_ERROR(CheckEcho(call, model.generator.description()));
  std::vector<PromptRequest> requests;
  const auto add_one = [&](absl::StatusOr<std::vector<TokenId>> tokens,
                           const openai::PromptInput* echoed) -> absl::Status {
    RETURN_IF_ERROR(tokens.status());
    const size_t num_tokens = tokens->size();
    ASSIGN_OR_RETURN(
        PromptRequest request,
        MakePromptRequest(call, *std::move(tokens), model, caller, id));
    if (echoed != nullptr) {
      const bool is_whole = request.parts.tokens.size() == num_tokens;
      ASSIGN_OR_RETURN(
          request.parts.text,
          EchoOf(*echoed, is_whole, request.parts, model.generator));
    }
    requests.push_back(std::move(request));
    return absl::OkStatus();
  };
  const PromptTokensOptions options =
      TokensOptionsOf(call, model.generator.description());
  if (call.chat.has_value()) {
    RETURN_IF_ERROR(
        add_one(ChatTokens(*call.chat, options, model.generator), nullptr));
  }
  for (const openai::PromptInput& input : call.prompts) {
    const absl::Status added =
        add_one(TokensOf(input, options, model.generator),
                call.echo ? &input : nullptr);
    if (!added.ok()) {
      return OfPrompt(added, requests.size(), call);
    }
  }
  RETURN_IF_ERROR(CheckLengths(call, model.generator.description(), requests));
  RETURN_IF_ERROR(CheckMayWait(requests, model.generator.max_waiting_tokens()));
  return requests;
}

int64_t NumRows(const std::vector<PromptRequest>& prompts) {
  int64_t rows = 0;
  for (const PromptRequest& prompt : prompts) {
    rows += NumSequences(prompt.parts.params);
  }
  return rows;
}

}  // namespace espalier::serve
