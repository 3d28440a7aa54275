// The defaults of a model's requests: which file they are read from.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model_description.h"
#include "request/generation_defaults.h"

namespace espalier {

// By GeneratorOptions::generation_config, for the model in `directory`, which
// is empty for a model of one's own. FitDefaults is left to be done.
// Errors: kInvalidArgument naming the option, or file, field and value;
// kNotFound for a file that is named and is not there; as ReadFile.
absl::StatusOr<GenerationDefaults> LoadModelDefaults(
    const std::string& generation_config, const std::string& directory);

// Fits what was loaded to the model: CheckDefaults; what acts on text is
// unsupported of a model without a tokenizer.
// Errors: kInvalidArgument naming file, field and value.
absl::Status FitDefaults(const std::string& generation_config,
                         const ModelDescription& model, bool has_tokenizer,
                         GenerationDefaults* defaults);

}  // namespace espalier
