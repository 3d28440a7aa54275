#include "espalier/model_defaults.h"

#include <filesystem>
#include <system_error>

#include "base/field_error.h"
#include "base/status.h"
#include "request/json/generation_config.h"

namespace espalier {
namespace {

constexpr char kFileName[] = "/generation_config.json";

absl::StatusOr<GenerationDefaults> ReadDefaults(const std::string& path,
                                                DefaultsOf file) {
  ASSIGN_OR_RETURN(const json::object config, ReadConfigObject(path));
  return ReadGenerationDefaults(config, path, file);
}

// The model's own. Without such a file they are fields of config.json, as in
// transformers: models of its first versions have them there.
absl::StatusOr<GenerationDefaults> ReadModels(const std::string& directory) {
  if (directory.empty()) return GenerationDefaults();
  absl::StatusOr<GenerationDefaults> defaults =
      ReadDefaults(directory + kFileName, DefaultsOf::kModel);
  if (!absl::IsNotFound(defaults.status())) return defaults;
  defaults = ReadDefaults(directory + "/config.json", DefaultsOf::kModelConfig);
  if (absl::IsNotFound(defaults.status())) return GenerationDefaults();
  return defaults;
}

// Returns the error for a path that is no file and may be a misspelled keyword.
absl::Status NoSuchFile(const absl::Status& status, const std::string& path,
                        OptionName option) {
  if (path == "vllm") {
    return InvalidField(option, " must be none for no defaults of the ",
                        "model", Got("vLLM's word for that, \"vllm\""));
  }
  return MakeFieldError(
      status.code(), option, ": ", Message(status),
      "; it must be auto, strict, none, a file or a directory");
}

absl::StatusOr<GenerationDefaults> ReadGiven(const std::string& path,
                                             OptionName option) {
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  absl::StatusOr<GenerationDefaults> defaults =
      ReadDefaults(is_directory ? path + kFileName : path, DefaultsOf::kGiven);
  if (absl::IsNotFound(defaults.status())) {
    return NoSuchFile(defaults.status(), path, option);
  }
  if (!defaults.ok()) return AnnotateOption(defaults.status(), option.field);
  return defaults;
}

absl::Status CheckSupported(const std::string& generation_config,
                            const GenerationDefaults& defaults,
                            OptionName option) {
  if (generation_config != "strict" || defaults.unsupported.empty()) {
    return absl::OkStatus();
  }
  return InvalidField(NameUnsupported(defaults), "; ", option,
                      " auto goes on without");
}

}  // namespace

absl::StatusOr<GenerationDefaults> LoadModelDefaults(
    const std::string& generation_config, const std::string& directory) {
  constexpr OptionName option = {"generation_config"};
  if (generation_config.empty()) {
    return InvalidField(option,
                        " must be auto, strict, none, a file or a directory",
                        Got("\"\""));
  }
  if (generation_config == "none") return GenerationDefaults();
  if (generation_config != "strict" && generation_config != "auto") {
    return ReadGiven(generation_config, option);
  }
  ASSIGN_OR_RETURN(GenerationDefaults defaults, ReadModels(directory));
  RETURN_IF_ERROR(CheckSupported(generation_config, defaults, option));
  return defaults;
}

absl::Status FitDefaults(const std::string& generation_config,
                         const ModelDescription& model, bool has_tokenizer,
                         GenerationDefaults* defaults) {
  RETURN_IF_ERROR(CheckDefaults(*defaults, model));
  if (!has_tokenizer) LeaveOut("stop", defaults);
  LeaveOutHostSelection(model, defaults);
  return CheckSupported(generation_config, *defaults, {"generation_config"});
}

}  // namespace espalier
