#include "openai/error.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/cord.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call.h"
#include "openai/call_fields.h"
#include "openai/read_tools.h"

namespace espalier::openai {
namespace {

// Payloads of errors: the field that they are about, and their code.
constexpr char kParam[] = "espalier/param";
constexpr char kCode[] = "espalier/code";

constexpr int kRetryAfterSeconds = 1;

// OpenAI's names for errors of an HTTP status.
struct HttpKind {
  int http_status;
  std::string_view type;
  std::string_view code;
};
constexpr std::string_view kInvalidRequest = "invalid_request_error";
constexpr HttpKind kHttpKinds[] = {
    {401, "authentication_error", "invalid_api_key"},
    {403, "permission_error", ""},
    {404, "not_found_error", ""},
    {408, "timeout_error", ""},
    {504, "timeout_error", ""},
    {429, "rate_limit_error", "rate_limit_exceeded"},
    {503, "server_error", "service_unavailable"},
};

HttpKind KindOf(int http_status) {
  const auto* const kind =
      std::ranges::find(kHttpKinds, http_status, &HttpKind::http_status);
  if (kind != std::end(kHttpKinds)) return *kind;
  return {http_status, http_status < 500 ? kInvalidRequest : "server_error",
          ""};
}

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    case absl::StatusCode::kResourceExhausted:
      return IsPermanent(status) ? 400 : 429;
    case absl::StatusCode::kAborted:
      return 499;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return 503;
    default:
      return 500;
  }
}

// Returns the path of the field that an error is about, "messages[0].role";
// empty if it is about none of a call.
std::string FieldOf(const absl::Status& status) {
  const std::optional<FieldError> error = FieldErrorOf(status);
  const bool is_call_field = error && IsCallField(error->field.substr(
                                          0, error->field.find_first_of(".[")));
  return is_call_field ? error->path : "";
}

// Returns the flag that sets an option of the engine: --max-running for
// max_running.
std::string FlagOf(std::string_view option) {
  std::string flag = Concat("--", option);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

bool ExceedsContext(const absl::Status& status) {
  const std::optional<FieldError> error = FieldErrorOf(status);
  return error && error->exceeds_context;
}

constexpr std::string_view kFunctions = "constraint.tool_calls.functions";

// Names a function of the constraint of a call's tools by its place among them:
// "functions[0].parameters" is of "tools[3].function.parameters".
absl::Status WithPlaceOfTool(const Call& call, const absl::Status& error) {
  const std::optional<FieldError> field = FieldErrorOf(error);
  if (!field || field->field != kFunctions) return error;
  const std::vector<size_t>& tools = call.constrained_tools;
  const int64_t i = field->index.value_or(-1);
  if (i < 0 || i >= std::ssize(tools)) return error;
  std::string parts = PartsOf(error);
  const std::string place = Concat("[", i, "]");
  parts.replace(parts.find(place), place.size(),
                Concat("[", tools[i], "]", MemberOfFunction(call.api)));
  return WithParts(error, parts);
}

// Returns the name that a call has for a field of its request.
std::optional<std::string> NameIn(const Call& call, std::string_view field) {
  constexpr std::string_view kUseBeamSearch = "use_beam_search";
  if (field == "prompt" || field == "prompt_tokens" || field == "messages") {
    return std::string(InputOf(call.api));
  }
  if (field.starts_with("constraint.tool_calls") &&
      !call.constrained_tools.empty()) {
    return field.ends_with(".text.json_schema") ? call.constraint_path
                                                : "tools";
  }
  if (field.starts_with("constraint.") && !call.constraint_path.empty()) {
    return call.constraint_path;
  }
  bool says_max_new_tokens = false;
  for (const GivenParam& given : call.given) {
    says_max_new_tokens |= given.name == "max_new_tokens";
    // A flag is not called as the params that it decides: what is wrong with
    // them holds where it is on.
    if (given.param == given.name || given.name == kUseBeamSearch) continue;
    if (given.param == field) return std::string(given.name);
  }
  // Unless the call says max_new_tokens itself, the error says max_tokens.
  if (field == "max_new_tokens" && !says_max_new_tokens) return "max_tokens";
  for (const std::string_view option :
       {"max_running", "max_waiting", "max_waiting_tokens"}) {
    if (field == option) return FlagOf(option);
  }
  return std::nullopt;
}

// Returns the flag of an option of the engine; of options that callers cannot
// do anything about its own name.
std::string NameOfOption(std::string_view option) {
  if (option == "max_beams") return FlagOf(option);
  return option == "kv_cache_bytes" ? "--kv-cache-mib" : std::string(option);
}

void AppendOrNull(std::string_view key, const std::string& text,
                  std::string* out) {
  *out += key;
  if (text.empty()) {
    *out += "null";
  } else {
    AppendJson(std::string_view(text), out);
  }
}

}  // namespace

Error MakeHttpError(int http_status, std::string_view message) {
  const HttpKind kind = KindOf(http_status);
  const bool retries = http_status == 429 || http_status == 503;
  return {.http_status = http_status,
          .message = std::string(message),
          .type = std::string(kind.type),
          .code = std::string(kind.code),
          .retry_after_s = retries ? kRetryAfterSeconds : 0};
}

Error ErrorOf(const absl::Status& status, const Call* call) {
  if (call != nullptr) return ErrorOf(InWordsOf(*call, status));
  const std::string message = Message(status);
  Error error = MakeHttpError(HttpStatusOf(status), message);
  error.is_final = absl::IsDeadlineExceeded(status);
  const auto param = status.GetPayload(kParam);
  if (param) error.param = std::string(*param);
  if (const auto code = status.GetPayload(kCode))
    error.code = std::string(*code);
  if (error.http_status != 400) return error;
  if (!param) error.param = FieldOf(status);
  if (ExceedsContext(status)) error.code = "context_length_exceeded";
  return error;
}

absl::Status InWordsOf(const Call& call, const absl::Status& error) {
  if (error.ok()) return error;
  const FieldWords words = {
      .field = [&](std::string_view field) { return NameIn(call, field); },
      .option = NameOfOption};
  absl::Status reworded = InWordsOf(words, WithPlaceOfTool(call, error));
  if (const auto param = error.GetPayload(kParam)) {
    const std::string field(*param);
    reworded.SetPayload(
        kParam, absl::Cord(ToAbsl(NameIn(call, field).value_or(field))));
  }
  if (const auto code = error.GetPayload(kCode)) {
    reworded.SetPayload(kCode, *code);
  }
  const std::optional<FieldError> field = FieldErrorOf(error);
  if (field && field->field == "the prompt") {
    reworded.SetPayload(kParam, absl::Cord(ToAbsl(InputOf(call.api))));
  }
  return reworded;
}

absl::Status WithParam(absl::Status error, std::string_view param) {
  error.SetPayload(kParam, absl::Cord(ToAbsl(param)));
  return error;
}

absl::Status RefuseField(std::string_view param, std::string_view message) {
  return WithParam(InvalidArgument(message), param);
}

absl::Status ModelNotFound(std::string_view message) {
  absl::Status status = WithParam(NotFound(message), "model");
  status.SetPayload(kCode, absl::Cord("model_not_found"));
  return status;
}

std::string WriteError(const Error& error) {
  std::string json = R"({"error": {"message": )";
  AppendJson(std::string_view(error.message), &json);
  json += R"(, "type": )";
  AppendJson(std::string_view(error.type), &json);
  AppendOrNull(R"(, "param": )", error.param, &json);
  AppendOrNull(R"(, "code": )", error.code, &json);
  json += "}}";
  return json;
}

}  // namespace espalier::openai
