// CTranslate2Model: a directory that a converter of CTranslate2 wrote, read as
// the model of transformers that it was made from: model.bin beside config.json
// and shared_vocabulary.json, or vocabulary.json of Whisper. Its family's
// reader (model_family.h) reads a config.json that is made of the variables,
// and the family's names find the tensors, so that there is nothing else of a
// family here.
//
// Thread safety: immutable after Open.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/ctranslate2/ctranslate2_file.h"
#include "model/ctranslate2/ctranslate2_tensors.h"
#include "model/transformer_config.h"

namespace espalier {

// True if the directory has a model.bin, and no weights in safetensors.
bool IsCTranslate2Directory(const std::string& directory);

struct CTranslate2Model {
  // Errors, all naming a file: as CTranslate2File::Open, ReadConfigObject and
  // ReadCTranslate2Vocabulary; kInvalidArgument naming the variable or the
  // field, and its value, if the model is not supported.
  static absl::StatusOr<CTranslate2Model> Open(const std::string& directory);

  CTranslate2File file;
  // With the model's tokens; generation_config.json is not read.
  TransformerConfig config;
  CTranslate2Tensors named;  // lives as long as `file`
};

}  // namespace espalier
