// The text side of a model directory for commands that do not run the model.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "espalier/model_text.h"

namespace espalier::cli {

// Returns the directory's text, with a tokenizer; the weights are not read.
// `option` is how the directory was given.
// Errors: as ModelText::Load, kFailedPrecondition without a tokenizer; each
// naming `option`.
absl::StatusOr<ModelText> LoadModelText(const std::string& directory,
                                        const std::string& option);

}  // namespace espalier::cli
