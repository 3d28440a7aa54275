#include "openai/call_fields.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/read_constraint.h"
#include "openai/read_input.h"
#include "openai/read_prompts.h"
#include "openai/read_tools.h"
#include "request/read_json_text.h"

namespace espalier::openai {
namespace {

constexpr unsigned kInChats = kInChat | kInResponses;
constexpr unsigned kInTexts = kInCompletions | kInChats;
constexpr unsigned kInAll = kInTexts | kInTokens;
constexpr unsigned kInParams = kInTexts | kInSampling;
constexpr unsigned kInTexting = kInTokenize | kInDetokenize;
// Scopes in which texts and conversations become prompts.
constexpr unsigned kInPrompts = kInTexts | kInTokenize;
// Scopes whose answers have choices; a response has none.
constexpr unsigned kInChoices = kInCompletions | kInChat;
constexpr unsigned kAnywhere = kInAll | kInSampling;
constexpr unsigned kInCalls = kInAll | kInTexting | kInScoring;

using Draft = CallDraft;

template <auto Member>
absl::Status SetCall(std::string_view name, const JsonText& json, const Limits&,
                     Draft* draft) {
  return Read(name, json, &(draft->call.*Member));
}

template <auto Member>
absl::Status SetDraft(std::string_view name, const JsonText& json,
                      const Limits&, Draft* draft) {
  return Read(name, json, &(draft->*Member));
}

template <auto Member>
absl::Status SetScore(std::string_view name, const JsonText& json,
                      const Limits&, Draft* draft) {
  return Read(name, json, &(draft->score.*Member));
}

template <auto Member>
absl::Status SetName(std::string_view name, const JsonText& json,
                     const Limits& limits, Draft* draft) {
  return ReadName(name, json, limits, &(draft->call.*Member));
}

// It goes into a header of the answer.
absl::Status SetRequestId(std::string_view name, const JsonText& json,
                          const Limits& limits, Draft* draft) {
  std::string& id = draft->call.request_id;
  RETURN_IF_ERROR(ReadName(name, json, limits, &id));
  const auto is_visible = [](char c) { return c > ' ' && c <= '~'; };
  if (std::ranges::all_of(id, is_visible)) return absl::OkStatus();
  return InvalidField(FieldName{name}, " must be visible ASCII characters",
                      Got(ShownInQuotes(id)));
}

// Accepts a field without effect on the answer if its value has type T.
template <typename T>
absl::Status Pass(std::string_view name, const JsonText& json,
                  const Limits& limits, Draft*) {
  if constexpr (std::is_same_v<T, std::string>) {
    std::string value;
    return ReadName(name, json, limits, &value);
  }
  if constexpr (std::is_same_v<T, json::object>) {
    RETURN_IF_ERROR(CheckElements(name, json, limits));
    if (json.is_object()) return absl::OkStatus();
    return WrongType(name, "an object", json.text);
  }
  T value = {};
  return Read(name, json, &value);
}

absl::Status PassAny(std::string_view name, const JsonText& json,
                     const Limits& limits, Draft*) {
  return CheckElements(name, json, limits);
}

absl::Status SetTemplate(std::string_view name, const JsonText& json,
                         const Limits& limits, Draft* draft) {
  std::string& chosen = draft->call.template_name;
  RETURN_IF_ERROR(ReadName(name, json, limits, &chosen));
  if (!chosen.empty()) return absl::OkStatus();
  return InvalidField(FieldName{name}, " must not be empty", Got("\"\""));
}

absl::Status SetPrompts(std::string_view name, const JsonText& json,
                        const Limits& limits, Draft* draft) {
  return ReadPrompts(name, json, limits, &draft->call);
}

absl::Status SetText(std::string_view name, const JsonText& json, const Limits&,
                     Draft* draft) {
  std::string text;
  RETURN_IF_ERROR(Read(name, json, &text));
  draft->call.prompts.emplace_back(std::move(text));
  return absl::OkStatus();
}

absl::Status SetTokens(std::string_view name, const JsonText& json,
                       const Limits& limits, Draft* draft) {
  std::vector<TokenId> tokens;
  RETURN_IF_ERROR(ReadTokens(name, json, limits, &tokens));
  draft->call.prompts.emplace_back(std::move(tokens));
  return absl::OkStatus();
}

absl::Status SetQuery(std::string_view name, const JsonText& json,
                      const Limits& limits, Draft* draft) {
  return ReadPrompt(name, json, limits, &draft->call.prompts.emplace_back());
}

absl::Status SetItems(std::string_view name, const JsonText& json,
                      const Limits& limits, Draft* draft) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  Limits any = limits;  // how many there may be depends on the labels
  any.max_prompts = limits.max_list_elements;
  return ReadPromptList(name, json, any, &draft->score.items);
}

absl::Status SetLabels(std::string_view name, const JsonText& json,
                       const Limits& limits, Draft* draft) {
  return ReadTokens(name, json, limits, &draft->score.label_token_ids);
}

ChatInputs* ChatOf(Draft* draft) {
  std::optional<ChatInputs>& chat = draft->call.chat;
  return chat ? &*chat : &chat.emplace();
}

absl::Status SetMessages(std::string_view name, const JsonText& json,
                         const Limits& limits, Draft* draft) {
  return ReadMessages(name, json, limits, &draft->call.chat);
}

absl::Status SetDocuments(std::string_view name, const JsonText& json,
                          const Limits& limits, Draft* draft) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  if (!json.is_array()) return WrongType(name, "a list", json.text);
  ASSIGN_OR_RETURN(ChatOf(draft)->documents, ReadAny(name, json));
  return absl::OkStatus();
}

absl::Status SetAddGenerationPrompt(std::string_view name, const JsonText& json,
                                    const Limits&, Draft* draft) {
  bool adds_prompt = true;
  RETURN_IF_ERROR(Read(name, json, &adds_prompt));
  draft->adds_generation_prompt = adds_prompt;
  ChatOf(draft)->add_generation_prompt = adds_prompt;
  return absl::OkStatus();
}

absl::Status SetReasoningEffort(std::string_view name, const JsonText& json,
                                const Limits& limits, Draft* draft) {
  std::string effort;
  RETURN_IF_ERROR(ReadName(name, json, limits, &effort));
  ChatOf(draft)->more.emplace(name, effort);
  return absl::OkStatus();
}

// True for keys that Render sets itself (text/chat/chat_template.h).
bool IsOfRender(std::string_view key) {
  return key == "messages" || key == "tools" || key == "documents" ||
         key == "add_generation_prompt";
}

absl::Status SetTemplateArguments(std::string_view name, const JsonText& json,
                                  const Limits& limits, Draft* draft) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  if (!json.is_object()) return WrongType(name, "an object", json.text);
  ASSIGN_OR_RETURN(const json::value parsed, ReadAny(name, json));
  for (const auto& [key, value] : parsed.get_object()) {
    if (IsOfRender(key)) {
      return InvalidField(FieldName{name}, " must not have ",
                          ShownInQuotes(key), Got(Shown(&value)));
    }
    ChatOf(draft)->more.insert_or_assign(key, value);
  }
  return absl::OkStatus();
}

absl::Status SetTruncation(std::string_view name, const JsonText& json,
                           const Limits&, Draft* draft) {
  std::optional<int64_t>& count = draft->call.truncate_prompt_tokens;
  RETURN_IF_ERROR(Read(name, json, &count));
  if (*count >= 1 || *count == -1) return absl::OkStatus();
  return InvalidField(FieldName{name}, " must be -1 or at least 1",
                      Got(*count));
}

absl::Status SetTruncationSide(std::string_view name, const JsonText& json,
                               const Limits&, Draft* draft) {
  std::string side;
  if (json.is_string()) side = Unquoted(json.text);
  if (side != "left" && side != "right") {
    return WrongType(name, "\"left\" or \"right\"", json.text);
  }
  draft->call.truncation_side =
      side == "left" ? TruncationSide::kLeft : TruncationSide::kRight;
  return absl::OkStatus();
}

absl::Status SetStreamOptions(std::string_view name, const JsonText& json,
                              const Limits& limits, Draft* draft) {
  if (!json.is_object()) return WrongType(name, "an object", json.text);
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  draft->has_stream_options = true;
  for (JsonItems items(json.text); items.Next();) {
    const std::string key = Unquoted(items.key());
    const std::string path = Concat(name, ".", Shown(key));
    const JsonText value = {items.value()};
    bool passed = false;  // padding against observers of lengths
    bool* const option = key == "include_usage" ? &draft->call.include_usage
                         : key == "continuous_usage_stats"
                             ? &draft->call.continuous_usage
                         : key == "include_obfuscation" ? &passed
                                                        : nullptr;
    if (option == nullptr) {
      return InvalidField(FieldName{path}, " is not known",
                          Got(Shown(value.text)));
    }
    if (value.is_null()) continue;
    RETURN_IF_ERROR(Read(path, value, option));
  }
  return absl::OkStatus();
}

absl::Status SetOutputMode(std::string_view name, const JsonText& json,
                           const Limits&, Draft* draft) {
  std::string mode;
  if (json.is_string()) mode = Unquoted(json.text);
  if (mode != "tokens" && mode != "text") {
    return WrongType(name, "\"tokens\" or \"text\"", json.text);
  }
  draft->call.shows_text = mode == "text";
  return absl::OkStatus();
}

absl::Status SetIncludeStop(std::string_view name, const JsonText& json,
                            const Limits&, Draft* draft) {
  return ReadGivenParam(ParamNamed("include_stop"), name, json, draft);
}

absl::Status SetMaxTokens(std::string_view name, const JsonText& json,
                          const Limits&, Draft* draft) {
  return ReadGivenParam(ParamNamed("max_new_tokens"), name, json, draft);
}

absl::Status SetMetadata(std::string_view name, const JsonText& json,
                         const Limits& limits, Draft* draft) {
  RETURN_IF_ERROR(Pass<json::object>(name, json, limits, draft));
  draft->call.metadata = json.text;
  return absl::OkStatus();
}

// Both 0 and vLLM's -1 are off.
absl::Status SetTopK(std::string_view name, const JsonText& json, const Limits&,
                     Draft* draft) {
  RETURN_IF_ERROR(ReadGivenParam(ParamNamed("top_k"), name, json, draft));
  int64_t& top_k = draft->call.params.top_k;
  if (top_k < -1) {
    return InvalidField(FieldName{name},
                        " must be at least 1, or 0 or -1, which are off",
                        Got(top_k));
  }
  if (top_k == -1) top_k = 0;
  return absl::OkStatus();
}

// OpenAI's are signed; vLLM's -1 is none: the engine draws one.
absl::Status SetSeed(std::string_view name, const JsonText& json, const Limits&,
                     Draft* draft) {
  int64_t seed = 0;
  if (json.is_number() && Read(name, json, &seed).ok() && seed < 0) {
    if (seed != -1) draft->call.params.seed = static_cast<uint64_t>(seed);
    MarkGiven("seed", name, draft);
    return absl::OkStatus();
  }
  const absl::Status status =
      ReadGivenParam(ParamNamed("seed"), name, json, draft);
  uint64_t natural = 0;
  if (status.ok() || Read(name, json, &natural).ok()) return status;
  return WrongType(name, "an integer in [-2^63, 2^64)", json.text);
}

constexpr CallField kFields[] = {
    // Model and prompt.
    {"model", kInCalls, SetName<&Call::model>},
    {"prompt", kInCompletions, SetPrompts},
    {"prompt", kInTokenize, SetText},
    {"messages", kInChat | kInTokenize, SetMessages},
    {"input", kInResponses, ReadInput},
    {"instructions", kInResponses, SetCall<&Call::instructions>},
    {"text", kInResponses, ReadTextOptions},
    {"reasoning", kInResponses, ReadReasoning},
    {"token_ids", kInTokens, SetTokens},
    {"tokens", kInDetokenize, SetTokens},
    {"template", kInCompletions | kInTokenize, SetTemplate},
    {"add_special_tokens", kInPrompts | kInScoring,
     SetCall<&Call::add_special_tokens>},
    {"query", kInScoring, SetQuery},
    {"items", kInScoring, SetItems},
    {"label_token_ids", kInScoring, SetLabels},
    {"item_first", kInScoring, SetScore<&ScoreCall::item_first>},
    {"apply_softmax", kInScoring, SetScore<&ScoreCall::apply_softmax>},
    {"append_eos", kInScoring, SetScore<&ScoreCall::append_eos>},
    {"parse_special", kInCompletions | kInTokenize,
     SetCall<&Call::parse_special>},
    {"split_sentences", kInCompletions, SetCall<&Call::split_sentences>},
    {"truncate_prompt_tokens", kInPrompts | kInSampling, SetTruncation},
    {"truncation_side", kInPrompts, SetTruncationSide},
    {"add_generation_prompt", kInChats | kInTokenize, SetAddGenerationPrompt},
    {"continue_final_message", kInChat | kInTokenize,
     SetDraft<&Draft::continue_final_message>},
    {"documents", kInChats | kInTokenize, SetDocuments},
    {"chat_template_kwargs", kInChats | kInTokenize, SetTemplateArguments},
    {"reasoning_effort", kInChat | kInTokenize, SetReasoningEffort},
    {"tools", kInChats | kInTokenize, ReadTools},
    {"tool_choice", kInChats | kInTokenize, ReadToolChoice},
    {"parallel_tool_calls", kInChats, SetCall<&Call::parallel_tool_calls>},
    // Params under other names, or with other values.
    {"use_beam_search", kInParams, SetDraft<&Draft::use_beam_search>},
    {"max_completion_tokens", kInPrompts, SetMaxTokens},
    {"max_output_tokens", kInResponses, SetMaxTokens},
    {"top_k", kInParams, SetTopK},
    {"seed", kInParams, SetSeed},
    {"include_stop_str_in_output", kInParams, SetIncludeStop},
    {"structured_outputs", kInParams, ReadStructuredOutputs},
    {"regex", kInParams, ReadRegex},
    {"grammar", kInParams, ReadGrammar},
    {"ebnf", kInParams, ReadGrammar},
    {"json_schema", kInParams, ReadJsonSchema},
    {"response_format", kInParams, ReadResponseFormat},
    {"guided_regex", kInParams, RefuseGuided},
    {"guided_choice", kInParams, RefuseGuided},
    {"guided_json", kInParams, RefuseGuided},
    {"guided_grammar", kInParams, RefuseGuided},
    {"guided_whitespace_pattern", kInParams, RefuseGuided},
    {"logprobs", kInChat, SetDraft<&Draft::has_logprobs>},
    {"top_logprobs", kInChat, SetDraft<&Draft::top_logprobs>},
    // Contents of the answer.
    {"stream", kInAll, SetCall<&Call::stream>},
    {"stream_options", kInAll, SetStreamOptions},
    {"stream_beams", kInChoices | kInTokens, SetCall<&Call::stream_beams>},
    {"echo", kInChoices, SetCall<&Call::echo>},
    {"return_token_ids", kInChoices | kInTokens,
     SetCall<&Call::return_token_ids>},
    {"return_tokens_as_token_ids", kInChoices, SetCall<&Call::tokens_as_ids>},
    {"output_mode", kInTokens, SetOutputMode},
    {"strict", kInCalls, SetDraft<&Draft::strict>},
    {"return_token_strs", kInTokenize, SetDraft<&Draft::return_token_strs>},
    {"request_id", kInAll | kInScoring, SetRequestId},
    // Fields without effect on the answer.
    {"user", kInAll, Pass<std::string>},
    {"metadata", kInChoices | kInTokens, Pass<json::object>},
    {"metadata", kInResponses, SetMetadata},
    {"store", kInAll, Pass<bool>},
    {"service_tier", kInAll, Pass<std::string>},
    {"safety_identifier", kInAll, Pass<std::string>},
    {"prompt_cache_key", kInAll, Pass<std::string>},
    {"prompt_cache_retention", kInAll, Pass<std::string>},
    {"session_id", kInAll, Pass<std::string>},
    {"session_params", kInAll, Pass<json::object>},
    {"rid", kInAll, PassAny},
    {"max_tool_calls", kInResponses, Pass<int64_t>},
    {"spaces_between_special_tokens", kInParams, Pass<bool>},
    {"separate_reasoning", kInChat, Pass<bool>},
    {"stream_reasoning", kInChat, Pass<bool>},
    {"return_token_offsets", kInTexts, Pass<bool>},
    {"return_mm_kwargs", kInTexts, Pass<bool>},
    {"detokenize", kInSampling, Pass<bool>},
    {"output_kind", kInSampling, PassAny},
    {"skip_clone", kInSampling, Pass<bool>},
    {"output_text_buffer_length", kInSampling, Pass<int64_t>},
    {"reasoning_ended", kInTokens, Pass<bool>},
    {"token_offsets", kInTokens, PassAny},
    // Unsupported fields that would change the answer.
    {"suffix", kInCompletions, nullptr, {"\"\""}},
    {"tools", kInCompletions, nullptr, {"[]"}},
    {"tool_choice", kInCompletions, nullptr, {"\"none\"", "\"auto\""}},
    {"functions", kInTexts, nullptr, {"[]"}},
    {"function_call", kInTexts, nullptr, {"\"none\"", "\"auto\""}},
    {"guided_decoding_backend", kInParams, nullptr},
    {"structural_tag", kInParams, nullptr},
    {"grammar_lazy", kInParams, nullptr, {"false"}},
    {"grammar_triggers", kInParams, nullptr, {"[]"}},
    {"stop_regex", kInParams, nullptr, {"[]"}},
    {"modalities", kInChat, nullptr, {"[\"text\"]"}},
    {"audio", kInChat, nullptr},
    {"prediction", kInChat, nullptr},
    {"web_search_options", kInChat, nullptr},
    {"verbosity", kInChat, nullptr, {"\"medium\""}},
    {"moderation", kInTexts, nullptr},
    {"chat_template", kInChat | kInTokenize, nullptr},
    {"include_reasoning", kInChat, nullptr, {"true"}},
    {"thinking_token_budget", kInParams, nullptr, {"-1"}},
    {"no_stop_trim", kInParams, nullptr, {"false"}},
    {"return_hidden_states", kInParams, nullptr, {"false"}},
    {"return_routed_experts", kInParams, nullptr, {"false"}},
    {"routed_experts_prompt_start", kInParams, nullptr, {"0"}},
    {"return_prompt_text", kInChat, nullptr, {"false"}},
    {"logits_processors", kInParams, nullptr, {"[]"}},
    {"custom_logit_processor", kInParams, nullptr},
    {"custom_params", kInParams, nullptr, {"{}"}},
    {"logprob_token_ids", kInParams, nullptr, {"[]"}},
    {"flat_logprobs", kInSampling, nullptr, {"false"}},
    {"skip_reading_prefix_cache", kInSampling, nullptr, {"false"}},
    {"extra_args", kInSampling, nullptr, {"{}"}},
    {"watermarking", kInParams, nullptr, {"false"}},
    {"repetition_detection", kInParams, nullptr},
    {"max_repetition_pattern_size", kInTexts, nullptr, {"0"}},
    {"min_repetition_pattern_size", kInTexts, nullptr, {"0"}},
    {"repetition_min_count", kInTexts, nullptr, {"0"}},
    {"stream_interval", kAnywhere, nullptr, {"1"}},
    {"prompt_embeds", kInTexts, nullptr},
    {"media_io_kwargs", kInPrompts, nullptr, {"{}"}},
    {"mm_processor_kwargs", kInPrompts, nullptr, {"{}"}},
    {"features", kInTokens, nullptr},
    {"content_parts", kInTokens, nullptr, {"[]"}},
    {"reasoning_parser_kwargs", kInTokens, nullptr, {"{}"}},
    {"kv_transfer_params", kInAll, nullptr, {"{}"}},
    {"ec_transfer_params", kInAll, nullptr, {"{}"}},
    {"vllm_xargs", kInAll, nullptr, {"{}"}},
    {"lora_path", kInAll, nullptr},
    {"lora_request", kInAll, nullptr},
    {"previous_response_id", kInResponses, nullptr},
    {"conversation", kInResponses, nullptr},
    {"background", kInResponses, nullptr, {"false"}},
    {"include", kInResponses, nullptr, {"[]"}},
    {"truncation", kInResponses, nullptr, {"\"disabled\""}},
    {"prompt", kInResponses, nullptr},
    {"logprobs", kInResponses, nullptr, {"false"}},
    {"top_logprobs", kInResponses, nullptr, {"0"}},
    {"prompt_logprobs", kInResponses, nullptr},
    {"stream_beams", kInResponses, nullptr, {"false"}},
    {"return_token_ids", kInResponses, nullptr, {"false"}},
    {"return_tokens_as_token_ids", kInResponses, nullptr, {"false"}},
    {"bootstrap_host", kInAll, nullptr},
    {"bootstrap_port", kInAll, nullptr},
    {"bootstrap_room", kInAll, nullptr},
};

// Params that stand beside "sampling_params", too: what is about the request,
// not about its tokens.
bool IsBesideSampling(std::string_view param) {
  return param == "priority" || param == "cache_salt" || param == "tenant" ||
         param == "deadline_ms" || param == "prefix_cache";
}

// Params that say what the decoder with an encoder begins with, and how much
// room a prompt that is truncated leaves.
bool IsOfPrompt(std::string_view param) {
  return param == "decoder_prompt" || param == "decoder_prompt_tokens" ||
         param == "forced_bos_token_id" || param == "max_new_tokens";
}

// Params that say something about scores of given tokens.
bool IsOfScoring(std::string_view param) {
  return IsBesideSampling(param) || param == "decoder_prompt" ||
         param == "decoder_prompt_tokens";
}

bool HasParam(Scope scope, const ParamField& field) {
  if (scope == kInScoring) return IsOfScoring(field.name);
  if (scope == kInTokenize) return IsOfPrompt(field.name);
  if (scope == kInDetokenize) return false;
  return scope != kInTokens || IsBesideSampling(field.name);
}

constexpr Scope kScopes[] = {kInCompletions, kInChat,     kInTokens,
                             kInSampling,    kInTokenize, kInDetokenize,
                             kInResponses,   kInScoring};

// Fields by name and scope, those of the table before params.
class FieldIndex {
 public:
  FieldIndex() {
    for (const Scope scope : kScopes) {
      auto& fields = fields_[scope];
      for (const CallField& field : CallFields()) {
        const size_t number = &field - CallFields().data();
        if (field.scopes & scope) {
          fields.emplace(field.name, KnownField{&field, nullptr, number});
        }
      }
      AddParams(scope);
    }
  }

  const KnownField* Find(std::string_view name, Scope scope) const {
    const auto& fields = fields_.at(scope);
    const auto found = fields.find(name);
    return found == fields.end() ? nullptr : &found->second;
  }

  std::vector<std::string_view> Names(Scope scope) const {
    std::vector<std::string_view> names;
    for (const auto& [name, field] : fields_.at(scope)) names.push_back(name);
    std::ranges::sort(names);
    return names;
  }

 private:
  // Each name is a field of its own, as one may stand beside the other.
  void AddParams(Scope scope) {
    size_t number = CallFields().size();
    for (const ParamField& field : ParamFields()) {
      for (const std::string_view name : {field.name, field.alias}) {
        const KnownField known = {nullptr, &field, number++};
        if (!name.empty() && HasParam(scope, field)) {
          fields_[scope].emplace(name, known);
        }
      }
    }
  }

  std::unordered_map<unsigned, std::unordered_map<std::string_view, KnownField>>
      fields_;
};

const FieldIndex& Index() {
  static const FieldIndex* const index = new FieldIndex;
  return *index;
}

bool IsNeutral(const CallField& field, const JsonText& json) {
  const absl::StatusOr<json::value> value = ReadAny(field.name, json);
  if (!value.ok()) return false;
  return std::ranges::any_of(field.neutral, [&](std::string_view neutral) {
    return !neutral.empty() && *value == ParseChecked(neutral);
  });
}

absl::Status RefuseUnlessNeutral(const CallField& field, const JsonText& json,
                                 const Limits& limits) {
  RETURN_IF_ERROR(CheckElements(field.name, json, limits));
  if (IsNeutral(field, json)) return absl::OkStatus();
  std::string wanted = "null";
  for (const std::string_view neutral : field.neutral) {
    if (!neutral.empty()) wanted += Concat(" or ", neutral);
  }
  return InvalidField(FieldName{field.name}, " is not supported: it must be ",
                      wanted, Got(Shown(json.text)));
}

}  // namespace

std::span<const CallField> CallFields() { return kFields; }

size_t NumKnownFields() {
  return CallFields().size() + 2 * ParamFields().size();
}

std::optional<KnownField> FindCallField(std::string_view name, Scope scope) {
  const KnownField* const field = Index().Find(name, scope);
  return field == nullptr ? std::nullopt : std::optional(*field);
}

std::vector<std::string_view> CallFieldNames(Scope scope) {
  return Index().Names(scope);
}

bool IsPassedOver(std::string_view name, Scope scope) {
  if (scope != kInTokenize || Index().Find(name, scope) != nullptr) {
    return false;
  }
  return Index().Find(name, kInCompletions) != nullptr ||
         Index().Find(name, kInChat) != nullptr;
}

bool IsOfMessages(const KnownField& field) {
  constexpr unsigned kTexts = kInCompletions | kInChat;
  return field.call != nullptr && (field.call->scopes & kTexts) == kInChat;
}

bool IsCallField(std::string_view name) {
  if (name == "sampling_params") return true;
  return std::ranges::any_of(kScopes, [&](Scope scope) {
    return Index().Find(name, scope) != nullptr;
  });
}

absl::Status ReadCallField(const KnownField& field, std::string_view name,
                           const JsonText& json, const Limits& limits,
                           CallDraft* draft) {
  if (field.param != nullptr) {
    RETURN_IF_ERROR(CheckElements(name, json, limits));
    return ReadGivenParam(*field.param, name, json, draft);
  }
  if (field.call->read == nullptr) {
    return RefuseUnlessNeutral(*field.call, json, limits);
  }
  return field.call->read(field.call->name, json, limits, draft);
}

}  // namespace espalier::openai
