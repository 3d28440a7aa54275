#include "serve/prompt_requests.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "base/field_error.h"
#include "base/status.h"
#include "base/token_log_prob.h"
#include "batcher/queue_limits.h"
#include "espalier/split_text.h"
#include "openai/error.h"
#include "openai/resolve_params.h"
#include "openai/settle_call.h"
#include "request/decoder_prompt.h"
#include "request/param_checks.h"
#include "request/text_begin.h"
#include "request/validate_lengths.h"
#include "serve/prompt_tokens.h"

namespace espalier::serve {
namespace {

// Prompts that will be cut may be longer than the context.
PromptTokensOptions TokensOptionsOf(const openai::Call& call,
                                    const ModelDescription& model) {
  PromptTokensOptions options = PromptTokensOptionsOf(call);
  if (!call.truncate_prompt_tokens.has_value()) {
    options.max_tokens = model.max_prompt_tokens();
  }
  return options;
}

absl::StatusOr<FramedTokens> TokensOf(const TextOrTokens& input,
                                      const PromptTokensOptions& options,
                                      const Generator& generator) {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&input)) {
    return FramedTokens{*tokens};
  }
  return TextTokens(std::get<std::string>(input), options, generator);
}

// Calls of batches wait behind all others; their own priorities order them.
void PutBehindOthers(GenerationParams* params) {
  constexpr int64_t kMost = int64_t{1} << 50;
  params->priority =
      kBackgroundPriority + kMost + std::clamp(params->priority, -kMost, kMost);
}

// Makes the request of these tokens, which are a prompt of the call.
absl::Status MakeOne(const openai::Call& call, FramedTokens framed,
                     const ServedModel& model, const Caller& caller,
                     const std::string& id, PromptRequest* made) {
  const Generator& generator = model.generator;
  if (call.truncate_prompt_tokens) {
    // Before the cut, so that an error names the id's place in the call, and
    // ids that are cut off are checked, too.
    RETURN_IF_ERROR(CheckTokens("prompt_tokens", framed.tokens,
                                generator.description().vocab_size));
  }
  PromptRequest& prompt = *made;
  prompt.unparsed = std::move(framed.unparsed);
  ASSIGN_OR_RETURN(
      std::vector<TokenId> tokens,
      TruncatePrompt(call, generator.description(), std::move(framed)));
  ResolvedParams resolved =
      openai::ResolveParams(call, model.defaults, generator.defaults(),
                            generator.description(), std::ssize(tokens));
  RETURN_IF_ERROR(openai::CheckLimits(call, resolved.params, &model.defaults));
  RETURN_IF_ERROR(
      openai::CheckRoom(call, resolved.params, generator.description()));
  Request request = {.prompt_tokens = tokens,
                     .params = std::move(resolved.params),
                     .caller_id = TraceId(caller, id)};
  if (call.chat && !call.chat->continue_final_message) {
    request.num_continued = 0;
  }
  RETURN_IF_ERROR(AddOwner(caller, &request.params));
  if (caller.is_stored) PutBehindOthers(&request.params);
  prompt.parts.tokens = std::move(tokens);
  prompt.parts.params = request.params;
  prompt.parts.defaults = std::move(resolved.defaults);
  const std::optional<bool>& splits = model.defaults.call().split_sentences;
  if (splits && !call.split_sentences) {
    prompt.parts.defaults.emplace_back("split_sentences",
                                       *splits ? "true" : "false");
  }
  ASSIGN_OR_RETURN(prompt.engine, generator.PrepareTokens(std::move(request)));
  if (!generator.description().encoder) {
    // The decoder prompt included.
    prompt.parts.tokens = prompt.engine.request.prompt_tokens;
    prompt.parts.params.decoder_prompt_tokens.clear();
  }
  if (const Tokenizer* const tokenizer = generator.tokenizer().get()) {
    prompt.parts.text_begin =
        TextBegin(*tokenizer, generator.description(), prompt.engine.request);
  }
  return absl::OkStatus();
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
  return InvalidField(
      "`echo` must be false with ", FieldName{call.NameOf("prompt_logprobs")},
      " for a model with an encoder, whose prompts have no log-probabilities",
      Got("true"));
}

// The text that is echoed in front of a generated one, which continues it.
// After an encoder that is the decoder prompt, as its tokens spell it; the
// source is no beginning of what is generated. Else the prompt: as the call has
// it, or if it was given or cut as tokens, what the engine got. A text that
// continues it has the rest of a character that it ends within.
absl::StatusOr<std::string> EchoOf(const openai::Call& call,
                                   const TextOrTokens& input, bool is_whole,
                                   const PromptRequest& request,
                                   const Generator& generator) {
  const Tokenizer* const tokenizer = generator.tokenizer().get();
  const auto* const text = std::get_if<std::string>(&input);
  const ModelDescription& model = generator.description();
  if (text != nullptr && is_whole && !model.encoder) return *text;
  if (tokenizer == nullptr) return std::string();
  const GenerationParams& params = request.parts.params;
  const Request& own = request.engine.request;
  std::vector<TokenId> context = request.parts.tokens;
  if (model.encoder) {
    context = DecoderPromptOf(model, params);
    const auto given = AfterStart(model, context);
    context.erase(context.begin(), context.end() - std::ssize(given));
  } else if (own.num_continued.value_or(0) > 0) {
    const std::span<const TokenId> decoder_prompt = ContinuedTokens(own);
    context.assign(decoder_prompt.begin(), decoder_prompt.end());
  }
  const bool is_continued = model.encoder || own.num_continued != 0;
  if (is_continued && !call.prompt_only) {
    return TextBefore(*tokenizer, params, context);
  }
  return tokenizer->Decode(context,
                           {.show_special = !params.skip_special_tokens});
}

// Refuses a call with more prompt tokens than the queue ever holds; with 429 a
// client would retry it forever. QueueLimits checks a single prompt.
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
  return InvalidField("`prompt` has ", num_tokens, " tokens in ",
                      requests.size(), " prompts, and at most ",
                      Limit(max_waiting_tokens),
                      " may wait (--max-waiting-tokens)");
}

absl::Status OfPlace(const absl::Status& error, const RequestPlace& place,
                     const openai::Call& call) {
  if (error.ok()) return error;
  return OfPrompt(place.num_sentences == 1
                      ? error
                      : OfSentence(error, place.sentence, place.num_sentences),
                  place.prompt, call);
}

// Refuses max_tokens that do not fit some prompt, with the error of the longest
// one: a value that fits it fits every prompt. The engine checks a single
// prompt.
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
  return OfPlace(ValidateLengths(model, num_tokens(*longest), &lengths),
                 longest->place, call);
}

// Bytes of a token in a result with so many best ones at its place.
int64_t BytesOfToken(std::optional<int64_t> num_best) {
  if (!num_best.has_value()) return sizeof(TokenId);
  return static_cast<int64_t>(sizeof(TokenId) + sizeof(TokenLogProb)) +
         *num_best * static_cast<int64_t>(sizeof(TokenScore));
}

int64_t BytesOfPrompt(const openai::PromptParts& parts) {
  if (!parts.params.prompt_logprobs) return 0;
  return std::ssize(parts.tokens) * BytesOfToken(parts.params.prompt_logprobs);
}

int64_t MaxBytesOfOutput(const GenerationParams& params) {
  const int64_t of_beam = params.beam_indices ? sizeof(int) : 0;
  return NumSequences(params) * params.max_new_tokens.value_or(1) *
         (BytesOfToken(params.logprobs) + of_beam);
}

// Refuses an answer that could be too large, before anything of it is made.
absl::Status CheckAnswerBytes(const openai::Call& call,
                              const std::vector<PromptRequest>& prompts) {
  int64_t of_prompts = 0, of_outputs = 0;
  for (const PromptRequest& prompt : prompts) {
    of_prompts += BytesOfPrompt(prompt.parts);
    of_outputs += MaxBytesOfOutput(prompt.parts.params);
  }
  const int64_t limit = call.limits.max_answer_bytes;
  if (of_prompts + of_outputs <= limit) return absl::OkStatus();
  const bool has_logprobs = prompts[0].parts.params.logprobs.has_value();
  const std::string_view field = of_prompts > of_outputs ? "prompt_logprobs"
                                 : has_logprobs          ? "logprobs"
                                                         : "max_new_tokens";
  return InvalidField(
      FieldName{field}, " must make an answer of at most ", Limit(limit),
      " bytes (--max-answer-bytes)",
      Got("up to ", of_prompts + of_outputs, " in ", prompts.size(),
          prompts.size() == 1 ? " prompt" : " prompts"));
}

// The sentences of a prompt that is split, at most `max_sentences`; nullopt of
// one that is not. `*whole_for` is a field as of FieldOfWholeText.
absl::StatusOr<std::optional<SplitText>> SplitPrompt(const openai::Call& call,
                                                     const TextOrTokens& input,
                                                     const ServedModel& model,
                                                     size_t max_sentences,
                                                     std::string* whole_for) {
  const Generator& generator = model.generator;
  const auto* const text = std::get_if<std::string>(&input);
  if (text == nullptr || generator.tokenizer() == nullptr) return std::nullopt;
  const SplitChoice choice = {
      .given = call.split_sentences,
      .otherwise = model.defaults.call().split_sentences,
      .translates_sentences =
          generator.translates_sentences(call.template_name),
      .has_encoder = generator.description().encoder.has_value(),
      .has_template = call.add_special_tokens.value_or(true),
      .parse_special = call.parse_special};
  constexpr int kShortestPrompt = 1;
  const GenerationParams params =
      openai::ResolveParams(call, model.defaults, generator.defaults(),
                            generator.description(), kShortestPrompt)
          .params;
  ASSIGN_OR_RETURN(const bool is_split, IsSplit(choice, params));
  if (is_split) return SplitIntoSentences(*text, max_sentences);
  *whole_for = call.NameOf(FieldOfWholeText(choice, params, *text));
  return std::nullopt;
}

// Sentences count as prompts do. `num_requests` may lack those beyond a limit.
absl::Status CheckNumSentences(const openai::Call& call, size_t num_requests,
                               int64_t max_open) {
  const int64_t limit = std::min<int64_t>(call.limits.max_prompts, max_open);
  if (static_cast<int64_t>(num_requests) <= limit) return absl::OkStatus();
  const std::string_view flags = limit == call.limits.max_prompts
                                     ? "--max-prompts"
                                     : "--max-running, --max-waiting";
  return InvalidField("`prompt` must have at most ", Limit(limit),
                      " sentences, each a request (", flags, ")", Got("more"),
                      "; send the text in parts");
}

// Sequences of all sentences of a call.
absl::Status CheckChoices(const openai::Call& call,
                          const std::vector<PromptRequest>& requests) {
  int64_t num_sequences = 0;
  for (const PromptRequest& request : requests) {
    num_sequences += NumSequences(request.parts.params);
  }
  const int64_t limit = call.limits.max_choices;
  if (num_sequences <= limit) return absl::OkStatus();
  return InvalidField("`prompt` must make at most ", Limit(limit),
                      " sequences of all sentences (--max-choices)",
                      Got(num_sequences, " of ", requests.size()),
                      "; send the text in parts");
}

// One for each prompt of the call, or each of its sentences, in order: its
// place, and what its text is whole for.
absl::StatusOr<std::vector<PromptRequest>> PlacesOf(const openai::Call& call,
                                                    const ServedModel& model,
                                                    int64_t max_open) {
  std::vector<PromptRequest> requests;
  if (call.chat.has_value()) requests.emplace_back();
  bool is_split = false;
  for (size_t i = 0; i < call.prompts.size(); ++i) {
    // One beyond the limit, which is refused.
    const size_t max_sentences = call.limits.max_prompts + size_t{1};
    std::string whole_for;
    ASSIGN_OR_RETURN(
        std::optional<SplitText> split,
        SplitPrompt(call, call.prompts[i], model, max_sentences, &whole_for));
    if (!split) {
      requests.push_back(
          {.place = {.prompt = i}, .whole_for = std::move(whole_for)});
      continue;
    }
    is_split = true;
    const size_t num_sentences = split->sentences.size();
    RETURN_IF_ERROR(
        CheckNumSentences(call, requests.size() + num_sentences, max_open));
    for (size_t k = 0; k < num_sentences; ++k) {
      requests.push_back(
          {.place = {.prompt = i,
                     .sentence = k,
                     .num_sentences = num_sentences,
                     .text = std::move(split->sentences[k]),
                     .separator = std::move(split->separators[k])}});
    }
  }
  if (is_split) {
    RETURN_IF_ERROR(CheckNumSentences(call, requests.size(), max_open));
  }
  return requests;
}

// Sentences of a prompt draw with one seed.
void ShareSeeds(std::vector<PromptRequest>* requests) {
  for (size_t i = 0; i < requests->size();) {
    const size_t num_sentences = (*requests)[i].place.num_sentences;
    std::vector<Request*> of_prompt;
    for (size_t k = 0; k < num_sentences; ++k) {
      of_prompt.push_back(&(*requests)[i + k].engine.request);
    }
    if (num_sentences > 1) ShareSeed(of_prompt);
    i += num_sentences;
  }
}

// One for each prompt of the call, or each of its sentences, in order.
absl::StatusOr<std::vector<PromptRequest>> MakeUnprepared(
    const openai::Call& call, const ServedModel& model, const Caller& caller,
    const std::string& id) {
  const Generator& generator = model.generator;
  int64_t max_open = generator.max_open();
  if (!OwnerOf(caller).empty()) max_open = QueueLimits::MaxOfOwner(max_open);
  if (std::ssize(call.prompts) > max_open) {
    // With 429 a client would retry it forever.
    return InvalidField("`prompt` has ", call.prompts.size(),
                        " prompts, each a request, and at most ",
                        Limit(max_open),
                        " may run and wait (--max-running, --max-waiting)");
  }
  RETURN_IF_ERROR(CheckEcho(call, generator.description()));
  ASSIGN_OR_RETURN(std::vector<PromptRequest> requests,
                   PlacesOf(call, model, max_open));
  const PromptTokensOptions options =
      TokensOptionsOf(call, generator.description());
  const auto make = [&](PromptRequest* request) -> absl::Status {
    RequestPlace& place = request->place;
    const bool is_sentence = place.num_sentences > 1;
    const std::string sentence = std::move(place.text);
    absl::StatusOr<FramedTokens> framed =
        call.chat ? ChatTokens(*call.chat, options, generator)
        : is_sentence
            ? TextTokens(sentence, options, generator)
            : TokensOf(call.prompts[place.prompt], options, generator);
    RETURN_IF_ERROR(framed.status());
    const size_t num_tokens = framed->tokens.size();
    RETURN_IF_ERROR(
        MakeOne(call, *std::move(framed), model, caller, id, request));
    const bool is_whole =
        is_sentence || request->parts.tokens.size() == num_tokens;
    if (call.echo && !call.chat && place.sentence == 0) {
      ASSIGN_OR_RETURN(request->parts.text,
                       EchoOf(call, call.prompts[place.prompt], is_whole,
                              *request, generator));
    }
    return absl::OkStatus();
  };
  for (PromptRequest& request : requests) {
    const absl::Status made = make(&request);
    if (!made.ok())
      return call.chat ? made : OfPlace(made, request.place, call);
  }
  if (call.chat.has_value() && call.echo) {
    ASSIGN_OR_RETURN(requests.back().parts.text,
                     FinalMessageOf(*call.chat, generator));
  }
  RETURN_IF_ERROR(CheckLengths(call, generator.description(), requests));
  if (requests.size() > call.prompts.size() && !call.chat) {
    RETURN_IF_ERROR(CheckChoices(call, requests));
  }
  RETURN_IF_ERROR(CheckMayWait(requests, generator.max_waiting_tokens()));
  RETURN_IF_ERROR(CheckAnswerBytes(call, requests));
  ShareSeeds(&requests);
  return requests;
}

absl::Status NameError(const absl::Status& error, const NamedValues& defaults,
                       const RequestPlace& place, const openai::Call& call) {
  return NameDefaults(OfPlace(error, place, call), defaults,
                      "the defaults of the server or its model");
}

// Has the engine make a prompt's request ready, but for a constraint that is
// not compiled.
absl::Status Prepare(const Engine& engine, const openai::Call& call,
                     const std::string& owner, PromptRequest* prompt) {
  absl::StatusOr<Engine::Prepared> prepared = engine.Prepare(
      std::move(prompt->engine.request), {.owner = owner, .compiles = false});
  if (!prepared.ok()) {
    return NameError(prompt->engine.finish(prepared.status()).status(),
                     prompt->parts.defaults, prompt->place, call);
  }
  prompt->prepared.emplace(*std::move(prepared));
  return absl::OkStatus();
}

}  // namespace

std::string LogNote(const Caller& caller) {
  const std::string id = Concat("id=", caller.request_id);
  return caller.key < 0 ? id : Concat(id, " key=", caller.key);
}

std::string TenantAddress(std::string_view client, int prefix_bits) {
  boost::system::error_code error;
  const auto address =
      boost::asio::ip::make_address(std::string(client), error);
  if (error || prefix_bits == 0) return "";
  if (address.is_v4()) return address.to_string();
  const boost::asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) {
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, v6)
        .to_string();
  }
  const auto network =
      boost::asio::ip::make_network_v6(v6, static_cast<uint16_t>(prefix_bits))
          .canonical();
  return network.to_string();
}

std::string OwnerOf(const Caller& caller) {
  if (caller.key >= 0) return Concat("key ", caller.key);
  return caller.address.empty() ? "" : Concat("address ", caller.address);
}

std::string TraceId(const Caller& caller, std::string_view id) {
  if (caller.key < 0) return std::string(id);
  return Concat("key ", caller.key, " ", id);
}

absl::Status AddOwner(const Caller& caller, GenerationParams* params) {
  const std::string owner = OwnerOf(caller);
  if (owner.empty()) return absl::OkStatus();
  const bool has_key = caller.key >= 0;
  const auto add = [&](std::string_view field, size_t max_bytes,
                       std::string* value) {
    const size_t room = max_bytes - owner.size() - 1;
    if (value->size() > room) {
      return InvalidField(FieldName{field}, " must have at most ", Limit(room),
                          " bytes beside an ", has_key ? "API key" : "address",
                          Got(value->size()));
    }
    *value = Concat(owner, " ", *value);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(add("tenant", kMaxTenantBytes, &params->tenant));
  if (!has_key || !params->prefix_cache) return absl::OkStatus();
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
  const std::optional<FieldError> error = FieldErrorOf(status);
  if (!error || error->depends_on_all_prompts) return status;
  const std::string name = Concat("prompt[", prompt, "]");
  const std::string_view field = error->field;
  if (field == "prompt" || field == "prompt_tokens" || field == "the prompt") {
    return WithField(status, name);
  }
  if (call.prompts.size() == 1) return status;
  // The queue's errors, which pass, count the tokens of all that wait.
  const bool is_of_request =
      status.code() != absl::StatusCode::kResourceExhausted ||
      IsPermanent(status);
  return is_of_request && error->depends_on_prompt
             ? AppendParts(status, "; of ", name)
             : status;
}

absl::Status ErrorOfPrompt(const PromptRequest& request,
                           const openai::Call& call,
                           const absl::Status& error) {
  return NameError(error, request.parts.defaults, request.place, call);
}

absl::StatusOr<std::vector<PromptRequest>> MakePromptRequests(
    const openai::Call& call, ServedModel& model, const Caller& caller,
    const std::string& id, const NamedValues& resolved) {
  ASSIGN_OR_RETURN(std::vector<PromptRequest> requests,
                   MakeUnprepared(call, model, caller, id));
  for (PromptRequest& request : requests) {
    NamedValues& defaults = request.parts.defaults;
    defaults.insert(defaults.begin(), resolved.begin(), resolved.end());
    RETURN_IF_ERROR(
        Prepare(model.generator.engine(), call, OwnerOf(caller), &request));
  }
  return requests;
}

std::vector<openai::PromptParts> TakeParts(
    std::vector<PromptRequest>* requests) {
  std::vector<openai::PromptParts> parts;
  for (PromptRequest& request : *requests) {
    if (request.place.sentence == 0) {
      parts.push_back(std::move(request.parts));
      continue;
    }
    std::vector<TokenId>& tokens = parts.back().tokens;
    tokens.insert(tokens.end(), request.parts.tokens.begin(),
                  request.parts.tokens.end());
  }
  return parts;
}

int64_t PromptReportBytes(const std::vector<PromptRequest>& prompts) {
  int64_t num_bytes = 0;
  for (const PromptRequest& prompt : prompts) {
    num_bytes += BytesOfPrompt(prompt.parts);
  }
  return num_bytes;
}

int64_t NumRows(const std::vector<PromptRequest>& prompts) {
  int64_t rows = 0;
  for (const PromptRequest& prompt : prompts) {
    rows += NumSequences(prompt.parts.params);
  }
  return rows;
}

}  // namespace espalier::serve
