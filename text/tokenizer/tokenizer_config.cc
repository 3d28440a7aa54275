#include "text/tokenizer/tokenizer_config.h"

#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace espalier {

absl::StatusOr<TokenizerConfigFile> TokenizerConfigFile::Parse(
    std::string_view text, const std::string& path) {
  absl::StatusOr<json::value> value = ParsePythonJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) {
    return InvalidArgument(path, " must hold an object, got ", Shown(&*value));
  }
  TokenizerConfigFile file;
  file.path_ = path;
  file.object_ = std::move(value->get_object());
  return file;
}

absl::StatusOr<TokenizerConfigFile> TokenizerConfigFile::Load(
    const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxBytes);
  if (absl::IsNotFound(text.status())) return Parse("{}", path);
  RETURN_IF_ERROR(text.status());
  return Parse(*text, path);
}

const json::value* TokenizerConfigFile::Find(std::string_view field) const {
  return object_.if_contains(field);
}

absl::StatusOr<std::optional<std::string>> TokenizerConfigFile::Token(
    std::string_view role) const {
  const json::value* const value = Find(role);
  if (value == nullptr || value->is_null()) return std::nullopt;
  const json::value* text = value;
  if (value->is_object()) text = value->get_object().if_contains("content");
  if (text == nullptr || !text->is_string()) {
    return InvalidArgument(path_, ": ", role,
                           " must be a string, null, or an object with "
                           "\"content\", got ",
                           Shown(value));
  }
  return std::string(text->get_string());
}

absl::StatusOr<std::optional<bool>> TokenizerConfigFile::Flag(
    std::string_view field) const {
  const json::value* const value = Find(field);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  return InvalidArgument(path_, ": ", field, " must be true, false or null, ",
                         "got ", Shown(value));
}

absl::StatusOr<TokenizerConfig> TokenizerConfig::Of(
    const TokenizerConfigFile& file) {
  TokenizerConfig config;
  ASSIGN_OR_RETURN(config.bos_token, file.Token("bos_token"));
  ASSIGN_OR_RETURN(config.eos_token, file.Token("eos_token"));
  ASSIGN_OR_RETURN(config.pad_token, file.Token("pad_token"));
  ASSIGN_OR_RETURN(config.unk_token, file.Token("unk_token"));
  return config;
}

}  // namespace espalier
