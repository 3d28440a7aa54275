#include "exec_request/request_json.h"

#include <cmath>
#include <limits>
#include <set>

#include "base/nearest.h"
#include "base/status.h"
#include "exec_request/param_fields.h"
#include "exec_request/read_json.h"

namespace espalier {
namespace {

// Parameters of a line; a field and its alias together are one too many.
absl::Status ParseParams(const json::value& value, GenerationParams* params) {
  if (!value.is_object()) return WrongType("params", "an object", value);
  std::set<const ParamField*> seen;
  for (const auto& [key, field_value] : value.get_object()) {
    const ParamField* field = FindParamField(key);
    if (field != nullptr && !seen.insert(field).second) {
      return InvalidArgument(field->name, " and ", field->alias,
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

absl::Status UnknownField(std::string_view key) {
  return InvalidArgument("unknown field ", ShownInQuotes(key),
                         FindParamField(key) != nullptr
                             ? "; it belongs in params"
                             : DidYouMean(key, kRequestFields));
}

absl::Status ReadField(std::string_view key, const json::value& value,
                       RequestBody* body) {
  if (key == "id") return absl::OkStatus();  // read by ParseRequestLine
  if (key == "prompt") return ReadPrompt(value, body);
  if (key == "prompt_tokens") {
    return ReadPromptTokens(value, &body->prompt_tokens);
  }
  if (key == "params") return ParseParams(value, &body->params);
  return UnknownField(key);
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
  if (!id.is_string() && !id.is_number()) {
    return WrongType("id", "a string or a number", id);
  }
  // 1e999 reads as infinity, which no answer can echo.
  if (id.is_double() && !std::isfinite(id.get_double())) {
    return InvalidArgument("id must be a number that fits into a double");
  }
  return absl::OkStatus();
}

}  // namespace

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

}  // namespace espalier
