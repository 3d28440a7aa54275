#include "text/chat/chat_config.h"

#include <algorithm>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr size_t kMaxConfigBytes = 16 << 20;
constexpr const char* kTokenFields[] = {"bos_token", "eos_token", "unk_token",
                                        "sep_token", "pad_token", "cls_token",
                                        "mask_token"};

// The object that the file holds; an empty one if there is no file.
absl::StatusOr<json::object> ReadObject(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return json::object();
  RETURN_IF_ERROR(text.status());
  absl::StatusOr<json::value> value = ParseJson(*text);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) {
    return InvalidArgument(path, " must hold an object, got ", Shown(&*value));
  }
  return std::move(value->get_object());
}

// A special token is a string, or an object that says how it is matched.
absl::StatusOr<std::optional<std::string>> ReadToken(const json::value& value,
                                                     const std::string& where) {
  const json::value* text = &value;
  if (value.is_object()) text = value.get_object().if_contains("content");
  if (value.is_null()) return std::nullopt;
  if (text == nullptr || !text->is_string()) {
    return InvalidArgument(where,
                           " must be a string, null, or an object with "
                           "\"content\", got ",
                           Shown(&value));
  }
  return std::string(text->get_string());
}

// Adds the tokens of `object` that `config` has not.
absl::Status AddTokens(const json::object& object, const std::string& path,
                       ChatConfig* config) {
  for (const char* const field : kTokenFields) {
    const json::value* const value = object.if_contains(field);
    const bool is_there = std::ranges::any_of(
        config->special_tokens,
        [&](const auto& token) { return token.first == field; });
    if (value == nullptr || is_there) continue;
    ASSIGN_OR_RETURN(const std::optional<std::string> text,
                     ReadToken(*value, Concat(path, ": ", field)));
    if (text) config->special_tokens.emplace_back(field, *text);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> StringField(const json::object& object,
                                        const char* field,
                                        const std::string& where) {
  const json::value* const value = object.if_contains(field);
  if (value == nullptr || !value->is_string()) {
    return InvalidArgument(where, ".", field, " must be a string, got ",
                           Shown(value));
  }
  return std::string(value->get_string());
}

// That of several templates which is named "default".
absl::StatusOr<std::string> ChooseDefault(const json::array& templates,
                                          const std::string& where) {
  std::string names;
  for (size_t i = 0; i < templates.size(); ++i) {
    const std::string place = Concat(where, "[", i, "]");
    if (!templates[i].is_object()) {
      return InvalidArgument(place, " must be an object with \"name\" and ",
                             "\"template\", got ", Shown(&templates[i]));
    }
    const json::object& item = templates[i].get_object();
    ASSIGN_OR_RETURN(const std::string name, StringField(item, "name", place));
    if (name == "default") return StringField(item, "template", place);
    names += (names.empty() ? "" : ", ") + ShownInQuotes(name);
  }
  return InvalidArgument(where, " needs a template named \"default\", has ",
                         names.empty() ? "none" : names);
}

absl::Status ReadTemplate(const json::object& object, ChatConfig* config) {
  const json::value* const value = object.if_contains("chat_template");
  if (value == nullptr || value->is_null()) return absl::OkStatus();
  const std::string where = config->path + ": chat_template";
  if (value->is_string()) {
    config->chat_template = std::string(value->get_string());
    return absl::OkStatus();
  }
  if (!value->is_array()) {
    return InvalidArgument(
        where, " must be a string, or a list of objects with \"name\" and ",
        "\"template\", got ", Shown(value));
  }
  ASSIGN_OR_RETURN(config->chat_template,
                   ChooseDefault(value->get_array(), where));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatConfig> ChatConfig::Load(const std::string& directory) {
  ChatConfig config;
  config.path = directory + "/tokenizer_config.json";
  ASSIGN_OR_RETURN(const json::object object, ReadObject(config.path));
  RETURN_IF_ERROR(ReadTemplate(object, &config));
  RETURN_IF_ERROR(AddTokens(object, config.path, &config));
  const std::string map_path = directory + "/special_tokens_map.json";
  ASSIGN_OR_RETURN(const json::object map, ReadObject(map_path));
  RETURN_IF_ERROR(AddTokens(map, map_path, &config));
  return config;
}

}  // namespace espalier
