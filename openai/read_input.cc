#include "openai/read_input.h"

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/read_constraint.h"
#include "request/json/read_prompt.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier::openai {
namespace {

// False for other names; an empty one is left for the checks of messages.
bool IsRole(std::string_view name) {
  return name.empty() || name == "user" || name == "assistant" ||
         name == "system" || name == "developer";
}

ChatInputs& DraftedChat(CallDraft* draft) {
  std::optional<ChatInputs>& chat = draft->call.chat;
  return chat ? *chat : chat.emplace();
}

json::object MakeMessage(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

// Makes the parts of a content those of a chat. Others are left for the checks
// of messages.
absl::Status RenameParts(const std::string& name, json::array* parts) {
  for (size_t i = 0; i < parts->size(); ++i) {
    if (!(*parts)[i].is_object()) continue;
    json::object& part = (*parts)[i].get_object();
    const json::value* const type = part.if_contains("type");
    const bool is_text =
        type != nullptr &&
        (*type == "input_text" || *type == "output_text" || *type == "text");
    if (!is_text) {
      return InvalidField(FieldName{name}, "[", i,
                          "].type must be \"input_text\" or \"output_text\"",
                          Got(Shown(type)));
    }
    part["type"] = "text";
  }
  return absl::OkStatus();
}

// Returns a member that must be a string, and not empty.
absl::StatusOr<std::string> ReadText(const std::string& name,
                                     const json::object& item,
                                     std::string_view member) {
  const json::value* const value = item.if_contains(member);
  if (value != nullptr && value->is_string() && !value->get_string().empty()) {
    return std::string(value->get_string());
  }
  return InvalidField(FieldName{name}, ".", member,
                      " must be a string, and not empty", Got(Shown(value)));
}

// A call of a function, as an answer has it.
absl::Status ReadFunctionCall(const std::string& name, json::object* item) {
  ASSIGN_OR_RETURN(const std::string id, ReadText(name, *item, "call_id"));
  ASSIGN_OR_RETURN(const std::string function, ReadText(name, *item, "name"));
  json::value* const given = item->if_contains("arguments");
  if (given == nullptr || !given->is_string()) {
    return InvalidField(FieldName{name}, ".arguments must be a string",
                        Got(Shown(given)));
  }
  json::value arguments = std::move(*given);
  RETURN_IF_ERROR(ReadArguments(name + ".arguments", &arguments));
  *item = {{"role", "assistant"},
           {"content", ""},
           {"tool_calls",
            {{{"id", id},
              {"type", "function"},
              {"function",
               {{"name", function}, {"arguments", std::move(arguments)}}}}}}};
  return absl::OkStatus();
}

// The output of a function that was called.
absl::Status ReadFunctionOutput(const std::string& name, json::object* item) {
  ASSIGN_OR_RETURN(const std::string id, ReadText(name, *item, "call_id"));
  json::value* const output = item->if_contains("output");
  if (output == nullptr || (!output->is_string() && !output->is_array())) {
    return InvalidField(FieldName{name},
                        ".output must be a string or a list of texts",
                        Got(Shown(output)));
  }
  json::value content = std::move(*output);
  if (content.is_array()) {
    RETURN_IF_ERROR(RenameParts(name + ".output", &content.get_array()));
    ASSIGN_OR_RETURN(content, JoinParts(name + ".output", content.get_array()));
  }
  *item = {
      {"role", "tool"}, {"tool_call_id", id}, {"content", std::move(content)}};
  return absl::OkStatus();
}

// Makes an item of the input a message of a chat.
absl::Status ReadItem(const std::string& name, json::value* value) {
  if (!value->is_object()) return WrongType(name, "an object", *value);
  json::object& item = value->get_object();
  const json::value* const type = item.if_contains("type");
  if (type != nullptr && *type == "function_call") {
    return ReadFunctionCall(name, &item);
  }
  if (type != nullptr && *type == "function_call_output") {
    return ReadFunctionOutput(name, &item);
  }
  if (type != nullptr && *type != "message") {
    return InvalidField(FieldName{name},
                        ".type must be \"message\", \"function_call\" or "
                        "\"function_call_output\"",
                        Got(Shown(type)));
  }
  const json::value* const role = item.if_contains("role");
  if (role != nullptr && role->is_string() && !IsRole(role->get_string())) {
    return InvalidField(FieldName{name},
                        ".role must be user, assistant, system or developer",
                        Got(Shown(role)));
  }
  for (const char* const member : {"type", "id", "status", "phase"}) {
    item.erase(member);
  }
  json::value* const content = item.if_contains("content");
  if (content == nullptr || !content->is_array()) return absl::OkStatus();
  return RenameParts(name + ".content", &content->get_array());
}

// Each output is that of a call of the input.
absl::Status CheckCallIds(const std::string& name,
                          const json::array& messages) {
  std::set<std::string_view> ids;
  for (const json::value& message : messages) {
    const json::value* const calls =
        message.get_object().if_contains("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (const json::value& call : calls->get_array()) {
      const json::value* const id = call.get_object().if_contains("id");
      if (id != nullptr && id->is_string()) {
        ids.insert(std::string_view(id->get_string()));
      }
    }
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const json::value* const id =
        messages[i].get_object().if_contains("tool_call_id");
    if (id == nullptr || messages[i].at("role") != "tool") continue;
    if (ids.contains(std::string_view(id->get_string()))) continue;
    return InvalidField(
        FieldName{name}, "[", i,
        "].call_id must be that of a function_call of the input",
        Got(Shown(id)));
  }
  return absl::OkStatus();
}

bool IsOfAssistant(const json::value& message) {
  return message.at("role") == "assistant";
}

// True for what ReadFunctionCall makes: calls, and nothing that is said.
bool IsCallAlone(const json::value& value) {
  const json::object& message = value.get_object();
  const json::value* const content = message.if_contains("content");
  return IsOfAssistant(value) && message.contains("tool_calls") &&
         content != nullptr && content->is_string() &&
         content->get_string().empty();
}

// The members of an object, each read by `read(path, name, value)`. Null ones
// are as if they were not there.
template <typename ReadMember>
absl::Status ReadMembers(std::string_view name, const JsonText& json,
                         const Limits& limits, const ReadMember& read) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  if (!json.is_object()) return WrongType(name, "an object", json.text);
  for (JsonItems items(json.text); items.Next();) {
    const std::string key = Unquoted(items.key());
    const JsonText value = {.text = items.value(),
                            .max_members = json.max_members};
    if (value.is_null()) continue;
    RETURN_IF_ERROR(read(Concat(name, ".", Shown(key)), key, value));
  }
  return absl::OkStatus();
}

absl::Status RefuseMember(std::string_view path, std::string_view wanted,
                          const JsonText& value) {
  return InvalidField(FieldName{path}, " is not supported: it must be null",
                      wanted, Got(Shown(value.text)));
}

}  // namespace

absl::Status ReadInput(std::string_view name, const JsonText& json,
                       const Limits& limits, CallDraft* draft) {
  json::array messages;
  if (json.is_string()) {
    messages.push_back(MakeMessage("user", Unquoted(json.text)));
  } else {
    RETURN_IF_ERROR(CheckElements(name, json, limits));
    if (!json.is_array()) {
      return WrongType(name, "a string or a list of messages", json.text);
    }
    ASSIGN_OR_RETURN(json::value value, ReadAny(name, json));
    messages = std::move(value.get_array());
    if (std::ssize(messages) > limits.max_messages) {
      return InvalidField(FieldName{name}, " must have at most ",
                          Limit(limits.max_messages),
                          " messages (--max-messages)", Got(messages.size()));
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      RETURN_IF_ERROR(ReadItem(Concat(name, "[", i, "]"), &messages[i]));
    }
  }
  RETURN_IF_ERROR(CheckMessages(name, &messages));
  RETURN_IF_ERROR(CheckCallIds(std::string(name), messages));
  DraftedChat(draft).messages = std::move(messages);
  return absl::OkStatus();
}

absl::Status ReadTextOptions(std::string_view name, const JsonText& json,
                             const Limits& limits, CallDraft* draft) {
  return ReadMembers(name, json, limits,
                     [&](const std::string& path, const std::string& key,
                         const JsonText& value) -> absl::Status {
                       if (key == "verbosity" && value.text == "\"medium\"") {
                         return absl::OkStatus();
                       }
                       if (key == "verbosity")
                         return RefuseMember(path, " or \"medium\"", value);
                       if (key != "format")
                         return RefuseMember(path, "", value);
                       draft->call.text_format = value.text;
                       return ReadFormat(name, path, value, limits, draft);
                     });
}

absl::Status ReadReasoning(std::string_view name, const JsonText& json,
                           const Limits& limits, CallDraft* draft) {
  return ReadMembers(
      name, json, limits,
      [&](const std::string& path, const std::string& key,
          const JsonText& value) -> absl::Status {
        std::string text;
        RETURN_IF_ERROR(Read(path, value, &text));
        if (key == "effort") {
          DraftedChat(draft).more.insert_or_assign("reasoning_effort", text);
        } else if (key == "summary" || key == "generate_summary") {
          draft->call.warnings.push_back(
              path + " has no effect: an answer has no summary");
        } else {
          return RefuseMember(path, "", value);
        }
        return absl::OkStatus();
      });
}

void JoinMessages(Call* call) {
  json::array joined;
  if (!call->instructions.empty()) {
    joined.push_back(MakeMessage("system", call->instructions));
  }
  for (json::value& value : call->chat->messages) {
    if (!IsCallAlone(value) || joined.empty() ||
        !IsOfAssistant(joined.back())) {
      joined.push_back(std::move(value));
      continue;
    }
    json::array& calls = value.at("tool_calls").get_array();
    json::object& before = joined.back().get_object();
    json::array& all = before.contains("tool_calls")
                           ? before.at("tool_calls").get_array()
                           : before["tool_calls"].emplace_array();
    for (json::value& one : calls) all.push_back(std::move(one));
  }
  call->chat->messages = std::move(joined);
}

}  // namespace espalier::openai
