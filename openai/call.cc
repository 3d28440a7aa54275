#include "openai/call.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/byte_order_mark.h"
#include "base/field_error.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/object_fields.h"
#include "openai/read_input.h"
#include "openai/read_tools.h"
#include "openai/settle_call.h"
#include "request/read_json.h"

namespace espalier::openai {
namespace {

constexpr std::string_view kSamplingParams = "sampling_params";

Scope ScopeOf(Api api) {
  switch (api) {
    case Api::kCompletions:
      return kInCompletions;
    case Api::kChat:
      return kInChat;
    case Api::kResponses:
      return kInResponses;
    case Api::kTokens:
      return kInTokens;
  }
  return kInTokens;
}

// The members of a body, those of its last "sampling_params" as well.
class BodyFields {
 public:
  explicit BodyFields(Api api) : api_(api), outer_(ScopeOf(api)) {}

  void Take(int depth, std::string_view quoted_key, const JsonText& value) {
    if (depth == 2) return inner_.Add(quoted_key, value);
    const bool is_sampling =
        api_ == Api::kTokens && Unquoted(quoted_key) == kSamplingParams;
    if (is_sampling) {
      sampling_params_ = value;
      sampling_ = std::move(inner_);
    } else {
      outer_.Add(quoted_key, value);
    }
    inner_ = ObjectFields(kInSampling);
  }

  ObjectFields& outer() { return outer_; }
  ObjectFields& sampling() { return sampling_; }
  const std::optional<JsonText>& sampling_params() const {
    return sampling_params_;
  }

 private:
  const Api api_;
  ObjectFields outer_;
  ObjectFields inner_{kInSampling};  // the object being scanned
  ObjectFields sampling_{kInSampling};
  std::optional<JsonText> sampling_params_;
};

absl::Status ReadFields(ObjectFields* fields, const Limits& limits,
                        CallDraft* draft) {
  for (const ObjectFields::Field& field : fields->Take()) {
    RETURN_IF_ERROR(
        ReadCallField(field.field, field.name, field.value, limits, draft));
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(BodyFields* body, const Limits& limits,
                          CallDraft* draft) {
  const std::optional<JsonText>& json = body->sampling_params();
  if (!json || json->is_null()) return absl::OkStatus();
  if (!json->is_object()) {
    return WrongType(kSamplingParams, "an object", json->text);
  }
  RETURN_IF_ERROR(ReadFields(&body->sampling(), limits, draft));
  return WarnOfUnknown(body->sampling(), draft);
}

// Checks that the call has the input of its API.
absl::Status CheckInputs(const CallDraft& draft) {
  const Call& call = draft.call;
  const bool is_chat = call.api == Api::kChat || call.api == Api::kResponses;
  const bool is_there = is_chat ? call.chat && !call.chat->messages.empty()
                                : !call.prompts.empty();
  if (is_there) return absl::OkStatus();
  return MissingField(MessageParts(FieldName{InputOf(call.api)},
                                   " must be there", Got("nothing")),
                      draft);
}

}  // namespace

std::string_view InputOf(Api api) {
  switch (api) {
    case Api::kCompletions:
      return "prompt";
    case Api::kChat:
      return "messages";
    case Api::kResponses:
      return "input";
    case Api::kTokens:
      return "token_ids";
  }
  return "";
}

std::string_view Call::NameOf(std::string_view param) const {
  const auto found = std::ranges::find(given, param, &GivenParam::param);
  return found == given.end() ? param : found->name;
}

bool Call::Gives(std::string_view param) const {
  return std::ranges::find(given, param, &GivenParam::param) != given.end();
}

absl::StatusOr<Call> ReadCall(Api api, std::string_view body,
                              const Limits& limits) {
  BodyFields fields(api);
  const auto take = [&](int depth, std::string_view key,
                        const JsonText& value) {
    fields.Take(depth, key, value);
  };
  ASSIGN_OR_RETURN(
      const JsonText json,
      ScanJson(WithoutByteOrderMark(body), api == Api::kTokens ? 2 : 1, take));
  if (!json.is_object()) {
    return WrongType("the body", "a JSON object", json.text);
  }
  CallDraft draft;
  draft.call.api = api;
  draft.call.limits = limits;
  draft.call.shows_text = api != Api::kTokens;
  RETURN_IF_ERROR(ReadFields(&fields.outer(), limits, &draft));
  RETURN_IF_ERROR(WarnOfUnknown(fields.outer(), &draft));
  RETURN_IF_ERROR(ReadSampling(&fields, limits, &draft));
  RETURN_IF_ERROR(CheckInputs(draft));
  RETURN_IF_ERROR(SettleTools(&draft));
  RETURN_IF_ERROR(SettlePrompts(&draft));
  // After the checks, whose errors number the messages of the call.
  if (api == Api::kResponses) JoinMessages(&draft.call);
  RETURN_IF_ERROR(SettleCall(&draft));
  return std::move(draft.call);
}

}  // namespace espalier::openai
