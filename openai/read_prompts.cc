#include "openai/read_prompts.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "request/json/read_json.h"
#include "request/json/read_json_text.h"

namespace espalier::openai {
namespace {

absl::Status RefuseEmpty(std::string_view name, std::string_view value) {
  return InvalidArgument(name, " must not be empty, got ", value);
}

absl::Status ToTokens(std::string_view name, const std::vector<int64_t>& ids,
                      std::vector<TokenId>* tokens) {
  if (ids.empty()) return RefuseEmpty(name, "[]");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] <= std::numeric_limits<TokenId>::max()) continue;
    return InvalidArgument(name, "[", i, "] must be a token id, got ", ids[i]);
  }
  tokens->assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status CheckText(std::string_view name, const std::string& text) {
  return text.empty() ? RefuseEmpty(name, "\"\"") : absl::OkStatus();
}

// Of a list of prompts, whose own items count alone.
absl::Status CheckNumPrompts(std::string_view name, const JsonText& json,
                             const Limits& limits) {
  int64_t count = 0;
  for (JsonItems items(json.text); items.Next();) ++count;
  if (count <= limits.max_prompts) return absl::OkStatus();
  return InvalidArgument(name, " must have at most ", limits.max_prompts,
                         " prompts (--max-prompts), got ", count);
}

absl::Status ReadTexts(std::string_view name, const JsonText& json,
                       const Limits& limits,
                       std::vector<PromptInput>* prompts) {
  RETURN_IF_ERROR(CheckNumPrompts(name, json, limits));
  std::vector<std::string> texts;
  RETURN_IF_ERROR(Read(name, json, &texts));
  for (size_t i = 0; i < texts.size(); ++i) {
    RETURN_IF_ERROR(CheckText(Concat(name, "[", i, "]"), texts[i]));
    prompts->emplace_back(std::move(texts[i]));
  }
  return absl::OkStatus();
}

absl::Status ReadTokenLists(std::string_view name, const JsonText& json,
                            const Limits& limits,
                            std::vector<PromptInput>* prompts) {
  RETURN_IF_ERROR(CheckNumPrompts(name, json, limits));
  std::vector<std::vector<int64_t>> lists;
  RETURN_IF_ERROR(Read(name, json, &lists));
  for (size_t i = 0; i < lists.size(); ++i) {
    std::vector<TokenId> tokens;
    RETURN_IF_ERROR(ToTokens(Concat(name, "[", i, "]"), lists[i], &tokens));
    prompts->emplace_back(std::move(tokens));
  }
  return absl::OkStatus();
}

// A list of {"type": "text", "text": T} as one text.
absl::Status JoinParts(const std::string& name, const json::array& parts,
                       json::string* joined) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_name = Concat(name, "[", i, "]");
    if (!parts[i].is_object()) {
      return WrongType(part_name, "an object", parts[i]);
    }
    const json::object& part = parts[i].get_object();
    const json::value* const type = part.if_contains("type");
    if (type == nullptr || *type != "text") {
      return InvalidArgument(part_name, ".type must be \"text\", got ",
                             Shown(type));
    }
    const json::value* const text = part.if_contains("text");
    if (text == nullptr || !text->is_string()) {
      return InvalidArgument(part_name, ".text must be a string, got ",
                             Shown(text));
    }
    if (i > 0) joined->push_back('\n');
    joined->append(text->get_string());
  }
  return absl::OkStatus();
}

absl::Status CheckMessage(const std::string& name, json::value* value) {
  if (!value->is_object()) return WrongType(name, "an object", *value);
  json::object& message = value->get_object();
  const json::value* const role = message.if_contains("role");
  if (role == nullptr || !role->is_string() || role->get_string().empty()) {
    return InvalidArgument(name, ".role must be a string, and not empty, got ",
                           Shown(role));
  }
  RETURN_IF_ERROR(CheckContent(name, message));
  json::value* const content = message.if_contains("content");
  if (content == nullptr || content->is_null() || content->is_string()) {
    return absl::OkStatus();
  }
  const std::string content_name = name + ".content";
  if (!content->is_array()) {
    return WrongType(content_name, "a string or a list of texts", *content);
  }
  json::string joined;
  RETURN_IF_ERROR(JoinParts(content_name, content->get_array(), &joined));
  *content = std::move(joined);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTokens(std::string_view name, const JsonText& json,
                        const Limits& limits, std::vector<TokenId>* tokens) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  std::vector<int64_t> ids;
  RETURN_IF_ERROR(Read(name, json, &ids));
  return ToTokens(name, ids, tokens);
}

absl::Status ReadPrompts(std::string_view name, const JsonText& json,
                         const Limits& limits, Call* call) {
  std::vector<PromptInput>* const prompts = &call->prompts;
  if (json.is_string()) {
    std::string text = Unquoted(json.text);
    RETURN_IF_ERROR(CheckText(name, text));
    prompts->emplace_back(std::move(text));
    return absl::OkStatus();
  }
  if (!json.is_array()) {
    return WrongType(name, "a string, token ids, or a list of these",
                     json.text);
  }
  JsonItems items(json.text);
  if (!items.Next()) return RefuseEmpty(name, "[]");
  const JsonText first = {items.value()};
  call->prompts_are_list = first.is_string() || first.is_array();
  if (first.is_string()) return ReadTexts(name, json, limits, prompts);
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  if (first.is_array()) return ReadTokenLists(name, json, limits, prompts);
  if (!first.is_number()) {
    return WrongType(Concat(name, "[0]"), "a string, a token id or a list",
                     first.text);
  }
  std::vector<TokenId> tokens;
  RETURN_IF_ERROR(ReadTokens(name, json, limits, &tokens));
  prompts->emplace_back(std::move(tokens));
  return absl::OkStatus();
}

absl::Status ReadMessages(std::string_view name, const JsonText& json,
                          const Limits& limits,
                          std::optional<ChatInputs>* chat) {
  if (!json.is_array()) return WrongType(name, "a list", json.text);
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  ASSIGN_OR_RETURN(json::value value, ReadAny(name, json));
  json::array& messages = value.get_array();
  if (messages.empty()) return RefuseEmpty(name, "[]");
  if (static_cast<int64_t>(messages.size()) > limits.max_messages) {
    return InvalidArgument(name, " must have at most ", limits.max_messages,
                           " messages (--max-messages), got ", messages.size());
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    RETURN_IF_ERROR(CheckMessage(Concat(name, "[", i, "]"), &messages[i]));
  }
  if (!*chat) chat->emplace();
  (*chat)->messages = std::move(messages);
  return absl::OkStatus();
}

}  // namespace espalier::openai
