// Chat settings of a model directory: the template in its
// tokenizer_config.json, and the special tokens that templates write. Each
// special token comes from tokenizer_config.json, else from
// special_tokens_map.json, else, if neither file has the field, not even as
// null, from the tokenizer: a SentencePiece model defines BOS and EOS without
// these files.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct ChatConfig {
  // `tokenizer` is that of the directory, or null. Of a directory without these
  // files, and without a tokenizer, it is empty.
  // Errors: as ReadFile, but for missing files; kInvalidArgument naming the
  // file, the field and its value.
  static absl::StatusOr<ChatConfig> Load(const std::string& directory,
                                         const Tokenizer* tokenizer);

  std::string path;  // path of tokenizer_config.json
  std::optional<std::string> chat_template;
  // Names in a list of templates; empty if there is a single template.
  std::vector<std::string> template_names;
  // "bos_token" and so on, with their texts.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

}  // namespace espalier
