// Reader of transformers' tokenizer_config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/tokenizer/languages.h"

namespace espalier {

// A tokenizer_config.json, or a special_tokens_map.json, which names tokens in
// the same way. All code that uses these files reads them here.
class TokenizerConfigFile {
 public:
  // Chat templates lie in it.
  static constexpr size_t kMaxBytes = size_t{32} << 20;

  // Parses `text`; `path` is for errors.
  // Errors: kInvalidArgument naming the file if `text` is no object of JSON.
  static absl::StatusOr<TokenizerConfigFile> Parse(std::string_view text,
                                                   const std::string& path);
  // Loads the file at `path`; empty if there is no file.
  // Errors: as ReadFile, but for a missing file; as Parse.
  static absl::StatusOr<TokenizerConfigFile> Load(const std::string& path);

  const std::string& path() const { return path_; }
  const json::object& object() const { return object_; }

  // nullptr if the field is missing; null if it is.
  const json::value* Find(std::string_view field) const;

  // Returns the spelling of the token with this role ("bos_token"): a string,
  // or the "content" of an object. Nullopt if it is missing or null.
  // Errors: kInvalidArgument naming the file, the field and its value.
  absl::StatusOr<std::optional<std::string>> Token(std::string_view role) const;
  // Nothing if it is missing or null.
  // Errors: as Token.
  absl::StatusOr<std::optional<bool>> Flag(std::string_view field) const;

 private:
  std::string path_;
  json::object object_;
};

// Tokens of a tokenizer.json that have a role.
struct TokenizerConfig {
  // By their spelling in the vocabulary.
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  std::optional<std::string> unk_token;

  // Set for a vocabulary that may have languages. Where a direction has a
  // source, they give the tokens around a text.
  std::optional<LanguageRule> languages = std::nullopt;

  // Errors: as TokenizerConfigFile::Token.
  static absl::StatusOr<TokenizerConfig> Of(const TokenizerConfigFile& file);
};

}  // namespace espalier
