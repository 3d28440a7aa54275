#include "model/ctranslate2/ctranslate2_model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "model/ctranslate2/ctranslate2_variables.h"
#include "model/ctranslate2/ctranslate2_vocabulary.h"
#include "model/ctranslate2/transformer_spec.h"
#include "model/model_family.h"
#include "request/json/generation_config.h"

namespace espalier {
namespace {

constexpr char kFile[] = "/model.bin";

// The type that dequantised weights have: that of the others.
DType TypeOfOthers(const CTranslate2File& file) {
  const StoredTensor* const norm =
      file.Find("decoder/layer_0/ffn/layer_norm/gamma");
  if (norm == nullptr || norm->dtype == "F32") return DType::kFloat32;
  return norm->dtype == "F16" ? DType::kFloat16 : DType::kBFloat16;
}

}  // namespace

bool IsCTranslate2Directory(const std::string& directory) {
  std::error_code error;
  const auto is_there = [&](const char* name) {
    return std::filesystem::exists(directory + name, error);
  };
  return is_there(kFile) && !is_there("/model.safetensors") &&
         !is_there("/model.safetensors.index.json");
}

absl::StatusOr<CTranslate2Model> CTranslate2Model::Open(
    const std::string& directory) {
  ASSIGN_OR_RETURN(CTranslate2File file,
                   CTranslate2File::Open(directory + kFile));
  // First: directories of other models have other files, too.
  RETURN_IF_ERROR(Annotate(CheckSpecification(file), file.path()));
  const std::string config_path = directory + "/config.json";
  ASSIGN_OR_RETURN(const json::object options, ReadConfigObject(config_path));
  ASSIGN_OR_RETURN(
      const CTranslate2Vocabulary vocabulary,
      ReadCTranslate2Vocabulary(
          directory, IsWhisperSpec(file) ? "vocabulary" : "shared_vocabulary"));
  CTranslate2Variables variables(file);
  absl::StatusOr<TransformerSpec> spec =
      ReadTransformerSpec(variables, options, vocabulary);
  if (!spec.ok()) return Annotate(spec.status(), file.path());
  TransformerConfig config;
  RETURN_IF_ERROR(
      Annotate(ReadModelConfig(spec->config, &config), file.path()));
  spec->Settle(&config);
  config.int8_rows = TypeOfOthers(file);
  absl::StatusOr<CTranslate2Tensors> named =
      NameCTranslate2Tensors(variables, *spec, config);
  if (!named.ok()) return Annotate(named.status(), file.path());
  return CTranslate2Model{std::move(file), std::move(config),
                          *std::move(named)};
}

}  // namespace espalier
