#include "openai/read_tools.h"

#include <string>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier::openai {
namespace {

absl::StatusOr<std::string> ReadToolName(const std::string& path,
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
  const json::value* const name = function->get_object().if_contains("name");
  if (name == nullptr || !name->is_string() || name->get_string().empty()) {
    return InvalidField(FieldName{path},
                        ".function.name must be a string, and not empty",
                        Got(Shown(name)));
  }
  const json::string& text = name->get_string();
  if (std::ssize(text) > limits.max_name_bytes) {
    return InvalidField(FieldName{path}, ".function.name must have at most ",
                        Limit(limits.max_name_bytes), " bytes",
                        Got(text.size()));
  }
  return std::string(text);
}

}  // namespace

absl::Status ReadTools(std::string_view name, const JsonText& json,
                       const Limits& limits, CallDraft* draft) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  if (!json.is_array()) return WrongType(name, "a list", json.text);
  ASSIGN_OR_RETURN(json::value tools, ReadAny(name, json));
  draft->tool_names.clear();
  const json::array& list = tools.get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(std::string tool_name,
                     ReadToolName(Concat(name, "[", i, "]"), list[i], limits));
    draft->tool_names.push_back(std::move(tool_name));
  }
  draft->tools = std::move(tools);
  return absl::OkStatus();
}

absl::Status ReadToolChoice(std::string_view name, const JsonText& json,
                            const Limits& limits, CallDraft* draft) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  const std::string choice = json.is_string() ? Unquoted(json.text) : "";
  if (choice != "none" && choice != "auto") {
    return InvalidField(
        FieldName{name},
        " must be \"auto\" or \"none\": no call of a tool can be forced",
        Got(Shown(json.text)));
  }
  draft->wants_tools = choice == "auto";
  return absl::OkStatus();
}

void SettleTools(CallDraft* draft) {
  if (!draft->call.chat || !draft->wants_tools) return;
  if (draft->tool_names.empty()) return;
  draft->call.chat->tools = std::move(draft->tools);
  draft->call.tool_calls.tool_names = std::move(draft->tool_names);
}

}  // namespace espalier::openai
