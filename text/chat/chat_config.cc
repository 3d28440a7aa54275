#include "text/chat/chat_config.h"

#include <map>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {
namespace {

constexpr const char* kTokenFields[] = {"bos_token", "eos_token", "unk_token",
                                        "sep_token", "pad_token", "cls_token",
                                        "mask_token"};

// Token texts of the fields that some file has; a field may be null.
using Tokens = std::map<std::string, std::optional<std::string>>;

// Adds those of `file` that are not there, or null.
absl::Status AddTokens(const TokenizerConfigFile& file, Tokens* tokens) {
  for (const char* const field : kTokenFields) {
    if (file.Find(field) == nullptr) continue;
    ASSIGN_OR_RETURN(std::optional<std::string> text, file.Token(field));
    std::optional<std::string>& token = (*tokens)[field];
    if (!token) token = std::move(text);
  }
  return absl::OkStatus();
}

// Adds those that no file has.
void AddTokens(const Tokenizer& tokenizer, Tokens* tokens) {
  const SpecialTokens& special = tokenizer.special_tokens();
  const std::pair<const char*, std::optional<TokenId>> ids[] = {
      {"bos_token", special.bos},
      {"eos_token", special.eos},
      {"pad_token", special.pad},
      {"unk_token", special.unk}};
  for (const auto& [field, id] : ids) {
    if (id) tokens->try_emplace(field, tokenizer.Piece(*id));
  }
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

// Reads a list of templates, of which the one that is named "default" counts.
absl::Status ReadTemplates(const json::array& templates,
                           const std::string& where, ChatConfig* config) {
  std::string names;
  for (size_t i = 0; i < templates.size(); ++i) {
    const std::string place = Concat(where, "[", i, "]");
    if (!templates[i].is_object()) {
      return InvalidArgument(place, " must be an object with \"name\" and ",
                             "\"template\", got ", Shown(&templates[i]));
    }
    const json::object& item = templates[i].get_object();
    ASSIGN_OR_RETURN(const std::string name, StringField(item, "name", place));
    config->template_names.push_back(name);
    names += (names.empty() ? "" : ", ") + ShownInQuotes(name);
    if (name != "default") continue;
    if (config->chat_template) {
      return InvalidArgument(place, ".name must not be \"default\" again");
    }
    ASSIGN_OR_RETURN(config->chat_template,
                     StringField(item, "template", place));
  }
  if (config->chat_template) return absl::OkStatus();
  return InvalidArgument(where, " needs a template named \"default\", has ",
                         names.empty() ? "none" : names);
}

absl::Status ReadTemplate(const TokenizerConfigFile& file, ChatConfig* config) {
  const json::value* const value = file.Find("chat_template");
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
  return ReadTemplates(value->get_array(), where, config);
}

}  // namespace

absl::StatusOr<ChatConfig> ChatConfig::Load(const std::string& directory,
                                            const Tokenizer* tokenizer) {
  ChatConfig config;
  config.path = directory + "/tokenizer_config.json";
  ASSIGN_OR_RETURN(const TokenizerConfigFile file,
                   TokenizerConfigFile::Load(config.path));
  RETURN_IF_ERROR(ReadTemplate(file, &config));
  Tokens tokens;
  RETURN_IF_ERROR(AddTokens(file, &tokens));
  ASSIGN_OR_RETURN(
      const TokenizerConfigFile map,
      TokenizerConfigFile::Load(directory + "/special_tokens_map.json"));
  RETURN_IF_ERROR(AddTokens(map, &tokens));
  if (tokenizer != nullptr) AddTokens(*tokenizer, &tokens);
  for (auto& [field, text] : tokens) {
    if (text) config.special_tokens.emplace_back(field, *std::move(text));
  }
  return config;
}

}  // namespace espalier
