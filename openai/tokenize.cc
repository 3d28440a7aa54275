#include "openai/tokenize.h"

#include <optional>
#include <utility>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "openai/answer_parts.h"
#include "openai/call_draft.h"
#include "openai/call_fields.h"
#include "openai/error.h"
#include "openai/object_fields.h"
#include "openai/token_names.h"

namespace espalier::openai {
namespace {

// The fields of `scope` that the body has, as a draft of a call.
absl::StatusOr<CallDraft> ReadDraft(std::string_view body, Scope scope,
                                    const Limits& limits) {
  ObjectFields fields(scope);
  const auto take = [&](int, std::string_view key, const JsonText& value) {
    fields.Add(key, value);
  };
  ASSIGN_OR_RETURN(const JsonText json, ScanJson(body, 1, take));
  if (!json.is_object()) {
    return InvalidArgument("the body must be a JSON object, got ",
                           Shown(json.text));
  }
  CallDraft draft;
  for (const ObjectFields::Field& field : fields.Take()) {
    RETURN_IF_ERROR(
        ReadCallField(field.field, field.name, field.value, limits, &draft));
  }
  RETURN_IF_ERROR(WarnOfUnknown(fields, &draft));
  return draft;
}

}  // namespace

absl::StatusOr<TokenizeCall> ReadTokenizeCall(std::string_view body,
                                              const Limits& limits) {
  ASSIGN_OR_RETURN(CallDraft draft, ReadDraft(body, kInTokenize, limits));
  Call& call = draft.call;
  const bool has_messages = call.chat && !call.chat->messages.empty();
  if (has_messages == !call.prompts.empty()) {
    return InvalidArgument(
        "prompt or messages must be there, one of the two, got ",
        has_messages ? "both" : "none");
  }
  TokenizeCall tokenize = {.model = std::move(call.model),
                           .add_special_tokens = call.add_special_tokens,
                           .return_token_strs = draft.return_token_strs,
                           .warnings = std::move(call.warnings)};
  if (has_messages) {
    tokenize.chat = std::move(call.chat);
  } else {
    tokenize.prompt = std::get<std::string>(std::move(call.prompts[0]));
  }
  return tokenize;
}

std::string WriteTokenized(const TokenizeCall& call,
                           std::span<const TokenId> tokens,
                           int64_t max_model_len, const Tokenizer& tokenizer) {
  std::string json;
  AppendField(R"({"count":)", static_cast<int64_t>(tokens.size()), &json);
  AppendField(R"(,"max_model_len":)", max_model_len, &json);
  json += R"(,"tokens":)";
  AppendIds(tokens, &json);
  json += R"(,"token_strs":)";
  if (call.return_token_strs) {
    const TokenNames names(&tokenizer, /*as_ids=*/false);
    AppendList(
        tokens,
        [&](TokenId token) {
          AppendJson(std::string_view(names.NameOf(token)), &json);
        },
        &json);
  } else {
    json += "null";
  }
  AppendWarnings(call.warnings, &json);
  json += '}';
  return json;
}

absl::StatusOr<DetokenizeCall> ReadDetokenizeCall(std::string_view body,
                                                  const Limits& limits) {
  ASSIGN_OR_RETURN(CallDraft draft, ReadDraft(body, kInDetokenize, limits));
  Call& call = draft.call;
  if (call.prompts.empty()) {
    return InvalidArgument("tokens must be there, got nothing");
  }
  return DetokenizeCall{
      .model = std::move(call.model),
      .tokens = std::get<std::vector<TokenId>>(std::move(call.prompts[0])),
      .warnings = std::move(call.warnings)};
}

std::string WriteDetokenized(const DetokenizeCall& call,
                             const std::string& text) {
  std::string json;
  AppendField(R"({"prompt":)", std::string_view(text), &json);
  AppendWarnings(call.warnings, &json);
  json += '}';
  return json;
}

}  // namespace espalier::openai
