// What a model's tokenizer_config.json says for its chats: the template, and
// the special tokens that templates write, which special_tokens_map.json may
// have, too.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier {

struct ChatConfig {
  // Of a directory without these files it is empty.
  // Errors: as ReadFile, but for missing files; kInvalidArgument naming the
  // file, the field and its value.
  static absl::StatusOr<ChatConfig> Load(const std::string& directory);

  std::string path;  // of tokenizer_config.json
  std::optional<std::string> chat_template;
  // "bos_token" and so on, with their texts.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

}  // namespace espalier
