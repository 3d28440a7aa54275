// A model's generation_config.json, or config.json where it has none, under the
// names that transformers gives their fields, as defaults of requests
// (request/generation_defaults.h). One table has the fields that are taken,
// another those that would change results and that there is nothing for. All
// others, of caches, reports and the like, say nothing about what is generated,
// but for those that are nearly the name of one in the tables: these are
// misspelt, and there is nothing for them either.
//
// Null is as if the field were missing, and so is the value that a field has
// without the file. transformers' own defaults for missing fields, top_k 50
// among them, are not taken.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "request/generation_defaults.h"

namespace espalier {

// The object that the file at `path` holds, a generation_config.json or a
// config.json.
// Errors: as ReadFile; kInvalidArgument naming the file and what is wrong with
// it.
absl::StatusOr<json::object> ReadConfigObject(const std::string& path);

// Source of the file. The model's own eos_token_id is not among the defaults:
// it is in ModelDescription::eos_token_ids.
enum class DefaultsOf {
  kModel,        // generation_config.json of the model's directory
  kModelConfig,  // config.json there, mostly other fields
  kGiven,        // any file
};

// The defaults in `config`, the object of the file at `path`. Ranges are
// checked by CheckDefaults.
// Errors: kInvalidArgument naming file, field and value.
absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(
    const json::object& config, const std::string& path, DefaultsOf file);

}  // namespace espalier
