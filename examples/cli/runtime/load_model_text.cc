#include "examples/cli/runtime/load_model_text.h"

#include "base/status.h"
#include "espalier/tokenizer.h"
#include "model/model_directory.h"

namespace espalier::cli {

absl::StatusOr<ModelText> LoadModelText(const std::string& directory,
                                        const std::string& option) {
  RETURN_IF_ERROR(Annotate(CheckIsDirectory(directory), option));
  absl::StatusOr<ModelText> text = ModelText::Load(directory);
  if (!text.ok()) return Annotate(text.status(), option);
  if (text->tokenizer != nullptr) return text;
  return FailedPrecondition(option, ": ", directory, " has no ",
                            Tokenizer::FileNames(),
                            ": put the model's tokenizer there");
}

}  // namespace espalier::cli
