// CTranslate2Vocabulary: the tokens of a CTranslate2 directory, which gives
// those with a role by their texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace espalier {

struct CTranslate2Vocabulary {
  std::string path;
  std::vector<std::string> tokens;  // by id

  // Errors: kInvalidArgument naming the file and the token, if it is missing.
  absl::StatusOr<TokenId> IdOf(std::string_view token) const;
};

// Reads NAME.json, a list of strings, or NAME.txt, a token a line.
//   name  "shared_vocabulary", or "vocabulary" of models with one vocabulary
// Errors: kNotFound naming the files if there is none; kInvalidArgument if the
// source and the target have a vocabulary each, or naming the file and what is
// wrong in it.
absl::StatusOr<CTranslate2Vocabulary> ReadCTranslate2Vocabulary(
    const std::string& directory, std::string_view name);

}  // namespace espalier
