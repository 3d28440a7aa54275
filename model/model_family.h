// ModelFamily: one `model_type` of config.json. Its reader sets the features of
// TransformerConfig and the names of the tensors. model/families/ has one file
// per family.
//
// A reader uses the fields and defaults of transformers' configuration class of
// the same name. It refuses fields that change the computation and are not a
// feature of TransformerConfig.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

struct ModelFamily {
  std::string_view model_type;    // "llama"
  std::string_view name;          // "Llama", for messages
  std::string_view architecture;  // "LlamaForCausalLM"
  // Fills in everything but generation defaults.
  // Errors: kInvalidArgument naming field and value.
  absl::Status (*read)(const json::object& json, TransformerConfig* config);
  bool is_encoder_decoder = false;
};

extern const ModelFamily kBartFamily;
extern const ModelFamily kGemmaFamily;
extern const ModelFamily kGemma2Family;
extern const ModelFamily kGemma3ImagesFamily;
extern const ModelFamily kGemma3Family;
extern const ModelFamily kGpt2Family;
extern const ModelFamily kLlamaFamily;
extern const ModelFamily kM2m100Family;
extern const ModelFamily kMarianFamily;
extern const ModelFamily kMbartFamily;
extern const ModelFamily kMistralFamily;
extern const ModelFamily kMt5Family;
extern const ModelFamily kOptFamily;
extern const ModelFamily kPegasusFamily;
extern const ModelFamily kPhi3Family;
extern const ModelFamily kQwen2Family;
extern const ModelFamily kQwen3Family;
extern const ModelFamily kStableLmFamily;
extern const ModelFamily kT5Family;
extern const ModelFamily kUmt5Family;
extern const ModelFamily kWhisperFamily;

// All of them, by model_type.
std::span<const ModelFamily* const> ModelFamilies();

// Reads a config.json, all but generation_config.json's part.
// Errors: kInvalidArgument naming field and value.
absl::Status ReadModelConfig(const json::object& json,
                             TransformerConfig* config);

// Returns the family of a config.json.
// Errors: kInvalidArgument naming model_type or architectures and the value.
absl::StatusOr<const ModelFamily*> FindModelFamily(const json::object& json);

}  // namespace espalier
