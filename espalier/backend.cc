#include "espalier/backend.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/field_error.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "espalier/model_text.h"
#include "executor/drafts/draft_model.h"
#include "model/model_directory.h"
#include "model/transformer_config.h"

namespace espalier {
namespace {

// Returns a description with an encoder if the model has one; nothing else is
// set.
ModelDescription EncoderOf(const std::string& directory) {
  ModelDescription description;
  if (HasEncoder(directory)) description.encoder.emplace();
  return description;
}

// Makes the executor's checks before anything is loaded, and before the
// vocabularies are compared: an encoder-decoder's usually differs.
absl::Status CheckEncodersOfDrafting(const std::string& directory,
                                     const std::string& draft) {
  RETURN_IF_ERROR(CheckTakesDraftModel(EncoderOf(directory), draft));
  return CheckIsDraftModel(EncoderOf(draft), draft);
}

// Paths may be spelt differently.
bool IsSamePath(const std::string& a, const std::string& b) {
  std::error_code error;
  return a == b || std::filesystem::equivalent(a, b, error);
}

}  // namespace

bool HasEncoder(const std::string& directory) {
  const auto config = ReadTransformerConfig(directory);
  return config.ok() && config->encoder.has_value();
}

absl::Status CheckSameVocabulary(const std::string& directory,
                                 const std::string& draft) {
  ASSIGN_OR_RETURN(const ModelText text, ModelText::Load(directory));
  const absl::StatusOr<ModelText> loaded = ModelText::Load(draft);
  if (!loaded.ok()) return AnnotateOption(loaded.status(), "draft_model");
  const ModelText& other = *loaded;
  if (text.tokenizer == nullptr || other.tokenizer == nullptr) {
    return absl::OkStatus();
  }
  const int size = text.tokenizer->vocab_size();
  const int other_size = other.tokenizer->vocab_size();
  for (TokenId token = 0; token < std::min(size, other_size); ++token) {
    const std::string piece = text.tokenizer->Piece(token);
    const std::string its = other.tokenizer->Piece(token);
    if (piece == its) continue;
    return InvalidField(OptionName{"draft_model"}, ": ", draft,
                        " must have the vocabulary of ", directory,
                        ", but token ", token, " is ", BytesInQuotes(its),
                        " instead of ", BytesInQuotes(piece));
  }
  if (size == other_size) return absl::OkStatus();
  return InvalidField(OptionName{"draft_model"}, ": ", draft,
                      " must have the vocabulary of ", directory,
                      ", but token ", std::min(size, other_size),
                      " is in one of them alone");
}

ModelWeights::ModelWeights(std::string directory, const BackendOptions& options)
    : directory_(std::move(directory)),
      device_(options.device),
      dtype_(options.dtype),
      format_(options.weights),
      draft_model_(options.draft_model) {}

absl::Status ModelWeights::CheckFit(const std::string& directory,
                                    const BackendOptions& options) const {
  const auto check = [](std::string_view option, const auto& loaded,
                        const auto& given) {
    if (loaded == given) return absl::OkStatus();
    return InvalidField(OptionName{option}, " must be that of loaded_weights, ",
                        BytesInQuotes(loaded), Got(BytesInQuotes(given)));
  };
  if (!IsSamePath(directory_, directory)) {
    return InvalidArgument("the directory must be that of loaded_weights, ",
                           BytesInQuotes(directory_), ", got ",
                           BytesInQuotes(directory));
  }
  RETURN_IF_ERROR(check("device", NameOf(device_), NameOf(options.device)));
  RETURN_IF_ERROR(check("dtype", NameOf(dtype_), NameOf(options.dtype)));
  RETURN_IF_ERROR(check("weights", NameOf(format_), NameOf(options.weights)));
  if (IsSamePath(draft_model_, options.draft_model)) return absl::OkStatus();
  return check("draft_model", draft_model_, options.draft_model);
}

absl::StatusOr<std::unique_ptr<Backend>> Backend::Load(
    const std::string& directory, const BackendOptions& options) {
  if (options.loaded_weights != nullptr) {
    RETURN_IF_ERROR(options.loaded_weights->CheckFit(directory, options));
  }
  if (!options.draft_model.empty()) {
    const absl::Status is_model = CheckModelDirectory(options.draft_model);
    if (!is_model.ok()) return AnnotateOption(is_model, "draft_model");
    RETURN_IF_ERROR(CheckEncodersOfDrafting(directory, options.draft_model));
    RETURN_IF_ERROR(CheckSameVocabulary(directory, options.draft_model));
  }
  return options.device.is_cuda ? LoadCudaBackend(directory, options)
                                : LoadCpuBackend(directory, options);
}

}  // namespace espalier
