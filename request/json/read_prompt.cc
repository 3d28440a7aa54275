#include "request/json/read_prompt.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/field_error.h"
#include "base/status.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier {
namespace {

// In the arguments of a call: the text of a body is bounded, but each of its
// bytes may become a value here.
constexpr int64_t kMaxArgumentValues = 1 << 16;

// Chat templates take a message without "content" for one that is empty. One of
// the assistant may be a call of tools alone.
bool NeedsContent(const json::string& role) {
  return role == "user" || role == "system" || role == "developer";
}

// The calls of tools of a message; a list without any is as none.
absl::Status ReadToolCalls(const std::string& name, json::object* message) {
  json::value* const calls = message->if_contains("tool_calls");
  if (calls == nullptr) return absl::OkStatus();
  if (calls->is_null() || (calls->is_array() && calls->get_array().empty())) {
    message->erase("tool_calls");
    return absl::OkStatus();
  }
  if (!calls->is_array()) return WrongType(name, "a list", *calls);
  for (size_t i = 0; i < calls->get_array().size(); ++i) {
    json::value& call = calls->get_array()[i];
    const auto call_name = [&] { return Concat(name, "[", i, "]"); };
    if (!call.is_object()) return WrongType(call_name(), "an object", call);
    json::value* const function = call.get_object().if_contains("function");
    if (function == nullptr || !function->is_object()) continue;
    json::value* const arguments =
        function->get_object().if_contains("arguments");
    if (arguments == nullptr) continue;
    RETURN_IF_ERROR(
        ReadArguments(call_name() + ".function.arguments", arguments));
  }
  return absl::OkStatus();
}

// Message `idx` of the list `list_name`.
absl::Status ReadMessage(std::string_view list_name, size_t idx,
                         json::value* value) {
  const auto name = [&] { return Concat(list_name, "[", idx, "]"); };
  const auto content_name = [&] { return name() + ".content"; };
  if (!value->is_object()) return WrongType(name(), "an object", *value);
  json::object& message = value->get_object();
  const json::value* const role = message.if_contains("role");
  if (role == nullptr || !role->is_string() || role->get_string().empty()) {
    return InvalidField(FieldName{name()},
                        ".role must be a string, and not empty",
                        Got(Shown(role)));
  }
  if (message.contains("tool_calls")) {
    RETURN_IF_ERROR(ReadToolCalls(name() + ".tool_calls", &message));
  }
  json::value* const content = message.if_contains("content");
  if (content == nullptr || content->is_null()) {
    if (!NeedsContent(role->get_string())) return absl::OkStatus();
    return InvalidField(FieldName{content_name()}, " must be there with role ",
                        Shown(role), Got(Shown(content)));
  }
  if (content->is_string()) return absl::OkStatus();
  if (!content->is_array()) {
    return WrongType(content_name(),
                     R"(a string or a list of {"type": "text", "text": T})",
                     *content);
  }
  ASSIGN_OR_RETURN(*content, JoinParts(content_name(), content->get_array()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<json::string> JoinParts(const std::string& name,
                                       const json::array& parts) {
  json::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    // To name a part costs more than to read it.
    const auto part_name = [&] { return Concat(name, "[", i, "]"); };
    if (!parts[i].is_object()) {
      return WrongType(part_name(), R"({"type": "text", "text": T})", parts[i]);
    }
    const json::object& part = parts[i].get_object();
    const json::value* const type = part.if_contains("type");
    // "input_text" is what OpenAI's API of responses calls it.
    if (type == nullptr || (*type != "text" && *type != "input_text")) {
      return InvalidField(FieldName{part_name()}, ".type must be \"text\"",
                          Got(Shown(type)));
    }
    const json::value* const text = part.if_contains("text");
    if (text == nullptr || !text->is_string()) {
      return InvalidField(FieldName{part_name()}, ".text must be a string",
                          Got(Shown(text)));
    }
    if (i > 0) joined.push_back('\n');
    joined.append(text->get_string());
  }
  return joined;
}

// Arguments of calls are texts in OpenAI's API, and templates write them as the
// JSON that they hold. A text that holds no object stays one: a model may have
// written it, and its answer is sent back to it.
absl::Status ReadArguments(const std::string& name, json::value* arguments) {
  if (!arguments->is_string()) return absl::OkStatus();
  const json::string& text = arguments->get_string();
  if (text.empty()) {
    arguments->emplace_object();
    return absl::OkStatus();
  }
  const auto ignore = [](int, std::string_view, const JsonText&) {};
  const absl::StatusOr<JsonText> scanned = ScanJson(text, 0, ignore);
  if (!scanned.ok() || !scanned->is_object()) return absl::OkStatus();
  if (scanned->num_values > kMaxArgumentValues) {
    return InvalidField(FieldName{name}, " must have at most ",
                        Limit(kMaxArgumentValues), " values",
                        Got(scanned->num_values));
  }
  ASSIGN_OR_RETURN(*arguments, ReadAny(name, *scanned));
  return absl::OkStatus();
}

absl::Status ToTokenIds(std::string_view name, std::span<const int64_t> ids,
                        std::vector<TokenId>* tokens) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] <= std::numeric_limits<TokenId>::max()) continue;
    return InvalidField(FieldName{name}, "[", i, "] must be a token id",
                        Got(ids[i]));
  }
  tokens->assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::StatusOr<json::array> ReadMessages(std::string_view name,
                                         const JsonText& json) {
  if (!json.is_array()) return WrongType(name, "a list", json.text);
  ASSIGN_OR_RETURN(json::value value, ReadAny(name, json));
  json::array& messages = value.get_array();
  RETURN_IF_ERROR(CheckMessages(name, &messages));
  return std::move(messages);
}

absl::Status CheckMessages(std::string_view name, json::array* messages) {
  if (messages->empty()) {
    return InvalidField(FieldName{name}, " must not be empty", Got("[]"));
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    RETURN_IF_ERROR(ReadMessage(name, i, &(*messages)[i]));
  }
  return absl::OkStatus();
}

}  // namespace espalier
