#include "text/tokenizer_config.h"

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "text/json_fields.h"

namespace espalier {
namespace {

// Chat templates lie in it.
constexpr size_t kMaxTokenizerConfigBytes = size_t{32} << 20;

// A token is its spelling, or an object that has it as "content".
absl::StatusOr<std::optional<std::string>> ReadRoleToken(
    const JsonFields& fields, std::string_view name) {
  const json::value* value = fields.Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return fields.OptionalString(name);
  if (!value->is_object()) {
    return fields.Wrong(name, "a string or an object with \"content\"");
  }
  ASSIGN_OR_RETURN(const JsonFields token, fields.Inner(name));
  ASSIGN_OR_RETURN(std::string content, token.String("content"));
  return std::optional(std::move(content));
}

absl::StatusOr<std::optional<bool>> ReadFlag(const JsonFields& fields,
                                             std::string_view name) {
  if (fields.Find(name) == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(const bool flag, fields.Bool(name));
  return std::optional(flag);
}

}  // namespace

absl::StatusOr<TokenizerConfig> TokenizerConfig::Parse(std::string_view text) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(text));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, ""));
  TokenizerConfig config;
  ASSIGN_OR_RETURN(config.bos_token, ReadRoleToken(fields, "bos_token"));
  ASSIGN_OR_RETURN(config.eos_token, ReadRoleToken(fields, "eos_token"));
  ASSIGN_OR_RETURN(config.pad_token, ReadRoleToken(fields, "pad_token"));
  ASSIGN_OR_RETURN(config.unk_token, ReadRoleToken(fields, "unk_token"));
  ASSIGN_OR_RETURN(config.add_bos_token, ReadFlag(fields, "add_bos_token"));
  ASSIGN_OR_RETURN(config.add_eos_token, ReadFlag(fields, "add_eos_token"));
  return config;
}

absl::StatusOr<TokenizerConfig> TokenizerConfig::Load(const std::string& path) {
  const absl::StatusOr<std::string> text =
      ReadFile(path, kMaxTokenizerConfigBytes);
  if (absl::IsNotFound(text.status())) return TokenizerConfig();
  RETURN_IF_ERROR(text.status());
  absl::StatusOr<TokenizerConfig> config = Parse(*text);
  if (!config.ok()) return Annotate(config.status(), path);
  return config;
}

}  // namespace espalier
