// TokenSettings: the settings of tokens in the files beside a vocabulary, read
// as transformers reads them: tokenizer_config.json and, if that has no
// added_tokens_decoder, special_tokens_map.json, added_tokens.json and the
// added tokens of a tokenizer.json.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {

// A token that is found in texts as it stands, before it has an id.
struct TokenEntry {
  std::string content;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool special = false;
  std::optional<bool> normalized;  // unset: if it is not special
  bool is_plain = false;           // the file has its spelling alone

  auto operator<=>(const TokenEntry&) const = default;

  // As an entry of a tokenizer.json's added_tokens.
  json::object ToJson(int64_t id) const;
};

struct TokenSettings {
  // In the order in which transformers adds their tokens.
  static constexpr std::array<std::string_view, 7> kRoles = {
      "bos_token", "eos_token", "unk_token", "sep_token",
      "pad_token", "cls_token", "mask_token"};

  // Reads the files in `directory`; `file` is its tokenizer.json, or nullptr.
  // Errors: as ReadFile; kInvalidArgument naming the file, the field and its
  // value.
  static absl::StatusOr<TokenSettings> Load(const std::string& directory,
                                            const json::object* file);

  // The token of a role; nullptr if it has none.
  const TokenEntry* Find(std::string_view role) const;

  // Gives `role` a token unless the files mention it, null included.
  void SetDefault(std::string_view role, std::string_view content);

  // Tokens that have a role: kRoles in their order, then the model's own roles.
  // The pointers live as long as this object.
  std::vector<const TokenEntry*> NamedTokens() const;
  // Further special tokens.
  const std::vector<TokenEntry>& ExtraTokens() const;
  // The spellings of bos_token, eos_token, pad_token and unk_token.
  TokenizerConfig Roles() const;

  TokenizerConfigFile config;
  // Null: the files say that there is none.
  std::map<std::string, std::optional<TokenEntry>, std::less<>> roles;
  // Roles of a model's own, "image_token", and further special tokens.
  std::vector<TokenEntry> named;
  std::vector<TokenEntry> extra;
  bool has_extra = false;  // whether tokenizer_config.json lists `extra`
  // The additional_special_tokens of special_tokens_map.json, which those of a
  // SentencePiece model replace.
  std::vector<TokenEntry> older_extra;
  // By their ids, and the file that lists them, for errors.
  std::map<int64_t, TokenEntry> listed;
  std::string listed_in;
};

}  // namespace espalier
