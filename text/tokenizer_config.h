// TokenizerConfig: what transformers' tokenizer_config.json says of a
// tokenizer.json beside it: which tokens have a role, and whether a sequence
// begins with BOS and ends with EOS. The rest of that file is about other
// things.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace espalier {

struct TokenizerConfig {
  // By their spelling in the vocabulary.
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  std::optional<std::string> unk_token;
  // Unset where the post-processor of the tokenizer.json decides.
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;

  // Of the file's content.
  // Errors: kInvalidArgument naming the field and its value.
  static absl::StatusOr<TokenizerConfig> Parse(std::string_view text);

  // Of the file at `path`; of none if there is no file.
  // Errors: as ReadFile, but for a missing file; as Parse, naming the file.
  static absl::StatusOr<TokenizerConfig> Load(const std::string& path);
};

}  // namespace espalier
