#include "exec_request/request_json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

absl::Status WrongType(std::string_view field, std::string_view wanted,
                       const json::value& value) {
  return InvalidArgument(field, " must be ", wanted, ", got ", Shown(&value));
}

absl::Status Read(std::string_view field, const json::value& value,
                  int64_t* out) {
  if (!value.is_int64()) return WrongType(field, "an integer", value);
  *out = value.get_int64();
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  std::optional<int64_t>* out) {
  return Read(field, value, &out->emplace());
}

absl::Status Read(std::string_view field, const json::value& value,
                  double* out) {
  if (!value.is_number()) return WrongType(field, "a number", value);
  *out = value.to_number<double>();
  return absl::OkStatus();
}

template <typename T>
absl::Status Read(std::string_view field, const json::value& value,
                  std::vector<T>* out) {
  if (!value.is_array()) return WrongType(field, "a list", value);
  const json::array& list = value.get_array();
  out->resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    RETURN_IF_ERROR(Read(Concat(field, "[", i, "]"), list[i], &(*out)[i]));
  }
  return absl::OkStatus();
}

// An id, or a list of ids.
absl::Status ReadEos(std::string_view field, const json::value& value,
                     std::optional<std::vector<int64_t>>* out) {
  std::vector<int64_t>& ids = out->emplace();
  if (value.is_array()) return Read(field, value, &ids);
  if (!value.is_int64()) {
    return WrongType(field, "a token id or a list of token ids", value);
  }
  ids = {value.get_int64()};
  return absl::OkStatus();
}

absl::Status ReadEarlyStopping(std::string_view field, const json::value& value,
                               EarlyStopping* out) {
  if (value.is_bool()) {
    *out = value.get_bool() ? EarlyStopping::kTrue : EarlyStopping::kFalse;
    return absl::OkStatus();
  }
  if (value.is_string() && value.get_string() == "never") {
    *out = EarlyStopping::kNever;
    return absl::OkStatus();
  }
  return WrongType(field, "true, false or \"never\"", value);
}

absl::Status ReadDoSample(std::string_view field, const json::value& value) {
  if (!value.is_bool()) return WrongType(field, "true or false", value);
  if (value.get_bool()) {
    return InvalidArgument(field,
                           " must be false (sampling is not there yet), "
                           "got true");
  }
  return absl::OkStatus();
}

using Setter = absl::Status (*)(std::string_view, const json::value&,
                                GenerationParams*);

template <auto Member>
absl::Status Set(std::string_view field, const json::value& value,
                 GenerationParams* params) {
  return Read(field, value, &(params->*Member));
}

using P = GenerationParams;

constexpr std::array kFields = {
    ParamField{"num_beams", "",
               "beams that live at a step; 1, the default, is greedy"},
    ParamField{"num_return_sequences", "n",
               "hypotheses returned; at most num_beams, default 1"},
    ParamField{"length_penalty", "",
               "exponent on the length that divides a beam's score; default 1"},
    ParamField{"early_stopping", "",
               "false, true or never: when a beam search may end"},
    ParamField{"max_new_tokens", "max_tokens",
               "tokens generated at most; default the model's, or 256"},
    ParamField{"min_new_tokens", "min_tokens",
               "tokens before which EOS is impossible"},
    ParamField{"eos_token_id", "",
               "id or list of ids that end a sequence; default the model's"},
    ParamField{"repetition_penalty", "",
               "> 1 makes tokens of prompt and output less likely"},
    ParamField{"no_repeat_ngram_size", "",
               "n-grams of this size appear at most once; 0 is off"},
    ParamField{"bad_words_ids", "",
               "list of lists of token ids that may not appear"},
    ParamField{"suppress_tokens", "", "list of token ids that may not appear"},
    ParamField{"do_sample", "", "must be false: sampling is not there yet"},
};

constexpr std::array<Setter, kFields.size()> kSetters = {
    Set<&P::num_beams>,
    Set<&P::num_return_sequences>,
    Set<&P::length_penalty>,
    [](std::string_view field, const json::value& value, P* params) {
      return ReadEarlyStopping(field, value, &params->early_stopping);
    },
    Set<&P::max_new_tokens>,
    Set<&P::min_new_tokens>,
    [](std::string_view field, const json::value& value, P* params) {
      return ReadEos(field, value, &params->eos_token_id);
    },
    Set<&P::repetition_penalty>,
    Set<&P::no_repeat_ngram_size>,
    Set<&P::bad_words_ids>,
    Set<&P::suppress_tokens>,
    [](std::string_view field, const json::value& value, P*) {
      return ReadDoSample(field, value);
    },
};

std::optional<size_t> FindField(std::string_view name) {
  const auto it = std::find_if(
      kFields.begin(), kFields.end(), [&](const ParamField& field) {
        return field.name == name || (!name.empty() && field.alias == name);
      });
  if (it == kFields.end()) return std::nullopt;
  return it - kFields.begin();
}

// Parameters of a line; a field and its alias together are one too many.
absl::Status ParseParams(const json::value& value, GenerationParams* params) {
  if (!value.is_object()) return WrongType("params", "an object", value);
  std::array<bool, kFields.size()> seen = {};
  for (const auto& [key, field_value] : value.get_object()) {
    const std::optional<size_t> index = FindField(key);
    if (index && std::exchange(seen[*index], true)) {
      return InvalidArgument(kFields[*index].name, " and ",
                             kFields[*index].alias,
                             " are the same field, got both");
    }
    RETURN_IF_ERROR(SetParam(key, field_value, params));
  }
  return absl::OkStatus();
}

absl::Status ReadPromptTokens(const json::value& value,
                              std::vector<TokenId>* out) {
  std::vector<int64_t> ids;
  RETURN_IF_ERROR(Read("prompt_tokens", value, &ids));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] > std::numeric_limits<TokenId>::max()) {
      return InvalidArgument("prompt_tokens[", i, "] must be a token id, got ",
                             ids[i]);
    }
  }
  out->assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status ReadPrompt(const json::value& value, RequestBody* body) {
  if (!value.is_string()) return WrongType("prompt", "a string", value);
  if (value.get_string().empty()) {
    return InvalidArgument("prompt must not be empty, got \"\"");
  }
  body->prompt = std::string(value.get_string());
  return absl::OkStatus();
}

absl::Status ReadField(std::string_view key, const json::value& value,
                       RequestBody* body) {
  if (key == "id") return absl::OkStatus();  // read by ParseRequestLine
  if (key == "prompt") return ReadPrompt(value, body);
  if (key == "prompt_tokens") {
    return ReadPromptTokens(value, &body->prompt_tokens);
  }
  if (key == "params") return ParseParams(value, &body->params);
  return InvalidArgument("unknown field ", WriteJson(json::value(key)));
}

absl::StatusOr<RequestBody> ReadBody(const json::object& object) {
  RequestBody body;
  for (const auto& [key, value] : object) {
    RETURN_IF_ERROR(ReadField(key, value, &body));
  }
  if (object.contains("prompt") == object.contains("prompt_tokens")) {
    return InvalidArgument(
        "a request needs one of prompt and prompt_tokens, ",
        object.contains("prompt") ? "got both" : "got neither");
  }
  return body;
}

absl::Status CheckId(const json::value& id) {
  if (id.is_string() || id.is_number()) return absl::OkStatus();
  return WrongType("id", "a string or a number", id);
}

json::object HypothesisObject(const Hypothesis& hypothesis,
                              const std::string* text) {
  json::object object;
  object["tokens"] =
      json::array(hypothesis.tokens.begin(), hypothesis.tokens.end());
  if (text != nullptr) object["text"] = *text;
  object["score"] = JsonFloat(hypothesis.score);
  object["cum_log_prob"] = JsonFloat(hypothesis.cum_log_prob);
  object["finish_reason"] = NameOf(hypothesis.finish_reason);
  return object;
}

}  // namespace

std::span<const ParamField> ParamFields() { return kFields; }

absl::Status SetParam(std::string_view name, const json::value& value,
                      GenerationParams* params) {
  const std::optional<size_t> index = FindField(name);
  if (!index) {
    return InvalidArgument("unknown field ", WriteJson(json::value(name)),
                           " in params");
  }
  return kSetters[*index](name, value, params);
}

RequestLine ParseRequestLine(std::string_view line) {
  absl::StatusOr<json::value> value = ParseJson(line);
  if (!value.ok()) return {nullptr, value.status()};
  if (!value->is_object()) {
    return {nullptr, WrongType("a request", "a JSON object", *value)};
  }
  const json::object& object = value->get_object();
  RequestLine result{nullptr, absl::StatusOr<RequestBody>()};
  if (const json::value* id = object.if_contains("id")) {
    if (const absl::Status status = CheckId(*id); !status.ok()) {
      return {nullptr, status};
    }
    result.id = *id;
  }
  result.body = ReadBody(object);
  return result;
}

std::string WriteResultLine(const json::value& id, const Result& result,
                            std::span<const std::string> texts) {
  json::array hypotheses;
  for (size_t i = 0; i < result.hypotheses.size(); ++i) {
    hypotheses.push_back(HypothesisObject(result.hypotheses[i],
                                          texts.empty() ? nullptr : &texts[i]));
  }
  const Usage& usage = result.usage;
  return WriteJson({{"id", id},
                    {"hypotheses", std::move(hypotheses)},
                    {"usage",
                     {{"prompt_tokens", usage.num_prompt_tokens},
                      {"cached_tokens", usage.num_cached_tokens},
                      {"generated_tokens", usage.num_generated_tokens},
                      {"steps", usage.num_steps}}}});
}

std::string WriteErrorLine(const json::value& id, const absl::Status& error) {
  return WriteJson(
      {{"id", id},
       {"error",
        {{"code", CodeName(error.code())}, {"message", Message(error)}}}});
}

}  // namespace espalier
