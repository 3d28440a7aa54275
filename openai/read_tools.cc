#include "openai/read_tools.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier::openai {
namespace {

// Returns the first few names, in quotes.
std::string ShownNames(std::span<const std::string> names) {
  constexpr size_t kMost = 5;
  std::string shown;
  for (const std::string& name : names.first(std::min(names.size(), kMost))) {
    shown += Concat(shown.empty() ? "" : ", ", ShownInQuotes(name));
  }
  return names.size() > kMost ? shown + ", ..." : shown;
}

// Null if `value` is no object with this member.
const json::value* MemberOf(const json::value& value, std::string_view key) {
  return value.is_object() ? value.get_object().if_contains(key) : nullptr;
}

// Makes a tool of /v1/responses, {"type": "function", "name": N, ...}, one of a
// chat, {"type": "function", "function": {"name": N, ...}}.
void MakeToolOfChat(json::value* value) {
  if (!value->is_object()) return;
  json::object function = std::move(value->get_object());
  json::object tool;
  if (const json::value* const type = function.if_contains("type")) {
    tool["type"] = *type;
    function.erase("type");
  }
  tool["function"] = std::move(function);
  *value = std::move(tool);
}

// `value` is a tool of a chat, whatever the API is.
absl::StatusOr<std::string> ReadToolName(Api api, const std::string& path,
                                         const json::value& value,
                                         const Limits& limits) {
  if (!value.is_object()) return WrongType(path, "an object", value);
  const json::object& tool = value.get_object();
  const json::value* const type = tool.if_contains("type");
  if (type != nullptr && *type != "function") {
    return InvalidField(FieldName{path}, ".type must be \"function\"",
                        Got(Shown(type)));
  }
  const json::value* const function = tool.if_contains("function");
  if (function == nullptr || !function->is_object()) {
    return InvalidField(FieldName{path}, ".function must be an object",
                        Got(Shown(function)));
  }
  const std::string member = Concat(MemberOfFunction(api), ".name");
  const json::value* const name = function->get_object().if_contains("name");
  if (name == nullptr || !name->is_string() || name->get_string().empty()) {
    return InvalidField(FieldName{path}, member,
                        " must be a string, and not empty", Got(Shown(name)));
  }
  const json::string& text = name->get_string();
  if (std::ssize(text) > limits.max_name_bytes) {
    return InvalidField(FieldName{path}, member, " must have at most ",
                        Limit(limits.max_name_bytes), " bytes",
                        Got(text.size()));
  }
  return std::string(text);
}

// `tool` has a name. Null members are as if they were not there.
absl::Status CheckFunction(Api api, const std::string& path,
                           const json::value& tool) {
  const json::object& function = tool.at("function").get_object();
  const auto error = [&](std::string_view wanted, const json::value* value) {
    return InvalidField(FieldName{path}, MemberOfFunction(api), wanted,
                        Got(Shown(value)));
  };
  const json::value* const description = function.if_contains("description");
  if (description != nullptr && !description->is_string() &&
      !description->is_null()) {
    return error(".description must be a string", description);
  }
  const json::value* const parameters = function.if_contains("parameters");
  if (parameters != nullptr && !parameters->is_object() &&
      !parameters->is_null()) {
    return error(".parameters must be an object", parameters);
  }
  const json::value* const strict = function.if_contains("strict");
  if (strict != nullptr && !strict->is_bool() && !strict->is_null()) {
    return error(".strict must be true or false", strict);
  }
  return absl::OkStatus();
}

absl::Status ReadMode(std::string_view name, std::string_view mode,
                      ToolChoice* choice) {
  if (mode == "auto") {
    choice->kind = ToolChoice::Kind::kAuto;
  } else if (mode == "none") {
    choice->kind = ToolChoice::Kind::kNone;
  } else if (mode == "required") {
    choice->kind = ToolChoice::Kind::kRequired;
  } else {
    return InvalidField(
        FieldName{name},
        " must be \"auto\", \"none\", \"required\", or an object",
        Got(ShownInQuotes(mode)));
  }
  return absl::OkStatus();
}

// {"mode": "auto" or "required", "tools": [{"type": "function", ...}, ...]}
absl::Status ReadAllowed(Api api, const std::string& path, json::value* value,
                         const Limits& limits, ToolChoice* choice) {
  if (value == nullptr || !value->is_object()) {
    return InvalidField(FieldName{path}, " must be an object",
                        Got(Shown(value)));
  }
  const json::value* const mode = MemberOf(*value, "mode");
  if (mode == nullptr || (*mode != "auto" && *mode != "required")) {
    return InvalidField(FieldName{NameOfPart(path, "mode")},
                        " must be \"auto\" or \"required\"", Got(Shown(mode)));
  }
  RETURN_IF_ERROR(ReadMode(path, std::string_view(mode->get_string()), choice));
  json::value* const tools = value->get_object().if_contains("tools");
  const std::string of_tools = NameOfPart(path, "tools");
  if (tools == nullptr || !tools->is_array() || tools->get_array().empty()) {
    return InvalidField(FieldName{of_tools},
                        " must be a list that is not empty", Got(Shown(tools)));
  }
  choice->names.emplace();
  for (json::value& tool : tools->get_array()) {
    if (api == Api::kResponses) MakeToolOfChat(&tool);
    ASSIGN_OR_RETURN(
        std::string name,
        ReadToolName(api, Concat(of_tools, "[", choice->names->size(), "]"),
                     tool, limits));
    choice->names->push_back(std::move(name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTools(std::string_view name, const JsonText& json,
                       const Limits& limits, CallDraft* draft) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  if (!json.is_array()) return WrongType(name, "a list", json.text);
  ASSIGN_OR_RETURN(json::value tools, ReadAny(name, json));
  draft->tool_names.clear();
  const Api api = draft->call.api;
  if (api == Api::kResponses) draft->call.tools = json.text;
  json::array& list = tools.get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = Concat(name, "[", i, "]");
    if (api == Api::kResponses) MakeToolOfChat(&list[i]);
    ASSIGN_OR_RETURN(std::string tool_name,
                     ReadToolName(api, path, list[i], limits));
    RETURN_IF_ERROR(CheckFunction(api, path, list[i]));
    draft->tool_names.push_back(std::move(tool_name));
  }
  draft->tools = std::move(tools);
  return absl::OkStatus();
}

absl::Status ReadToolChoice(std::string_view name, const JsonText& json,
                            const Limits& limits, CallDraft* draft) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  ToolChoice& choice = draft->call.tool_choice;
  if (!json.is_string() && !json.is_object()) {
    return WrongType(name, "a string or an object", json.text);
  }
  const Api api = draft->call.api;
  if (api == Api::kResponses) draft->call.tool_choice_text = json.text;
  if (json.is_string()) return ReadMode(name, Unquoted(json.text), &choice);
  ASSIGN_OR_RETURN(json::value value, ReadAny(name, json));
  const json::value* const type = MemberOf(value, "type");
  if (type != nullptr && *type == "function") {
    choice.kind = ToolChoice::Kind::kFunction;
    if (api == Api::kResponses) MakeToolOfChat(&value);
    ASSIGN_OR_RETURN(std::string function,
                     ReadToolName(api, std::string(name), value, limits));
    choice.names.emplace().push_back(std::move(function));
    return absl::OkStatus();
  }
  if (type != nullptr && *type == "allowed_tools") {
    if (api == Api::kResponses) {
      return ReadAllowed(api, std::string(name), &value, limits, &choice);
    }
    return ReadAllowed(api, NameOfPart(name, "allowed_tools"),
                       value.get_object().if_contains("allowed_tools"), limits,
                       &choice);
  }
  return InvalidField(FieldName{NameOfPart(name, "type")},
                      " must be \"function\" or \"allowed_tools\"",
                      Got(Shown(type)));
}

std::string_view MemberOfFunction(Api api) {
  return api == Api::kResponses ? "" : ".function";
}

std::string ShownChoice(const ToolChoice& choice) {
  if (!choice.names) return "\"required\"";
  return Concat(choice.names->size() == 1 ? "the function " : "the functions ",
                ShownNames(*choice.names));
}

absl::Status SettleTools(CallDraft* draft) {
  if (!draft->call.chat) return absl::OkStatus();
  const ToolChoice& choice = draft->call.tool_choice;
  if (draft->tool_names.empty() && (choice.must_call() || choice.names)) {
    return InvalidField(
        "`tool_choice` must be \"auto\" or \"none\" without tools",
        Got(ShownChoice(choice)));
  }
  const std::set<std::string_view> known(draft->tool_names.begin(),
                                         draft->tool_names.end());
  for (const std::string& name :
       choice.names.value_or(std::vector<std::string>())) {
    if (known.contains(name)) continue;
    return InvalidField("`tool_choice` must name functions of the tools, ",
                        ShownNames(draft->tool_names),
                        Got(ShownInQuotes(name)));
  }
  if (choice.kind == ToolChoice::Kind::kNone || draft->tool_names.empty()) {
    return absl::OkStatus();
  }
  draft->call.chat->tools = std::move(draft->tools);
  draft->call.tool_calls.tool_names = std::move(draft->tool_names);
  return absl::OkStatus();
}

}  // namespace espalier::openai
