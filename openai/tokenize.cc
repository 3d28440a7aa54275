#include "openai/tokenize.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_order_mark.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "openai/answer_parts.h"
#include "openai/call_draft.h"
#include "openai/call_fields.h"
#include "openai/error.h"
#include "openai/object_fields.h"
#include "openai/read_tools.h"
#include "openai/settle_call.h"
#include "openai/token_names.h"

namespace espalier::openai {
namespace {

// True if the call has a prompt and no messages.
bool HasPromptAlone(const std::vector<ObjectFields::Field>& fields) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(fields, name, &ObjectFields::Field::name) !=
           fields.end();
  };
  return has("prompt") && !has("messages");
}

// Says of the fields that conversations alone have what a completion says.
// Errors: kInvalidArgument naming one, if the call is strict.
absl::Status WarnOfMessages(const std::vector<std::string_view>& names,
                            CallDraft* draft) {
  for (const std::string_view name : names) {
    std::string warning = Concat("unknown field ", ShownInQuotes(name),
                                 " beside prompt; it is of messages");
    if (draft->strict) return RefuseField(name, warning);
    draft->call.warnings.push_back(std::move(warning));
  }
  return absl::OkStatus();
}

// The fields of `scope` that the body has, as a draft of a call.
absl::StatusOr<CallDraft> ReadDraft(std::string_view body, Scope scope,
                                    const Limits& limits) {
  ObjectFields fields(scope);
  const auto take = [&](int, std::string_view key, const JsonText& value) {
    fields.Add(key, value);
  };
  ASSIGN_OR_RETURN(const JsonText json,
                   ScanJson(WithoutByteOrderMark(body), 1, take));
  if (!json.is_object()) {
    return InvalidArgument("the body must be a JSON object, got ",
                           Shown(json.text));
  }
  CallDraft draft;
  CallDraft dropped;  // discarded, but checked
  std::vector<std::string_view> of_messages;
  const std::vector<ObjectFields::Field> known = fields.Take();
  const bool has_prompt_alone = HasPromptAlone(known);
  for (const ObjectFields::Field& field : known) {
    const bool is_dropped = has_prompt_alone && IsOfMessages(field.field);
    if (is_dropped) of_messages.push_back(field.name);
    RETURN_IF_ERROR(ReadCallField(field.field, field.name, field.value, limits,
                                  is_dropped ? &dropped : &draft));
  }
  RETURN_IF_ERROR(WarnOfMessages(of_messages, &draft));
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
    return MissingField(
        MessageParts("`prompt` or messages must be there, one of the two",
                     Got(has_messages ? "both" : "none")),
        draft);
  }
  RETURN_IF_ERROR(SettleTools(&draft));
  RETURN_IF_ERROR(SettlePrompts(&draft));
  call.api = has_messages ? Api::kChat : Api::kCompletions;
  call.limits = limits;
  if (!has_messages) call.chat.reset();
  return TokenizeCall{.call = std::move(call),
                      .return_token_strs = draft.return_token_strs};
}

std::string WriteTokenized(const TokenizeCall& call, const Tokenized& tokenized,
                           int64_t max_model_len, const Tokenizer& tokenizer) {
  const TokenNames names(&tokenizer, /*as_ids=*/false);
  std::string json;
  const auto append_tokens = [&](const std::vector<TokenId>& tokens,
                                 std::string_view ids,
                                 std::string_view strings) {
    json += ids;
    AppendIds(tokens, &json);
    json += strings;
    if (!call.return_token_strs) {
      json += "null";
      return;
    }
    const auto append_name = [&](TokenId token) {
      AppendJson(std::string_view(names.NameOf(token)), &json);
    };
    AppendList(std::span(tokens), append_name, &json);
  };
  AppendField(R"({"count":)", static_cast<int64_t>(tokenized.tokens.size()),
              &json);
  AppendField(R"(,"max_model_len":)", max_model_len, &json);
  append_tokens(tokenized.tokens, R"(,"tokens":)", R"(,"token_strs":)");
  if (tokenized.decoder_prompt) {
    append_tokens(*tokenized.decoder_prompt, R"(,"decoder_prompt_tokens":)",
                  R"(,"decoder_prompt_token_strs":)");
  }
  AppendWarnings(call.call.warnings, &json);
  json += '}';
  return json;
}

absl::StatusOr<DetokenizeCall> ReadDetokenizeCall(std::string_view body,
                                                  const Limits& limits) {
  ASSIGN_OR_RETURN(CallDraft draft, ReadDraft(body, kInDetokenize, limits));
  Call& call = draft.call;
  if (call.prompts.empty()) {
    return MissingField(MessageParts("`tokens` must be there", Got("nothing")),
                        draft);
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
