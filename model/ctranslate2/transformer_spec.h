// TransformerSpec: the specification of encoder-decoders in CTranslate2 files,
// as a config.json of transformers. WhisperSpec, of speech, is read as one
// whose encoder has convolutions in place of embeddings. Variables say what
// another model is:
//
//   relative_attention_bias in layers     T5; with those of each layer UMT5
//   norms after parts, of the embeddings  BART
//   norms after parts                     Marian
//   norms before parts, of embeddings     mBART
//   norms before parts, positions         M2M100
//     as M2M100 computes them
//   norms before parts                    PEGASUS; other sinusoids are those of
//                                         OpenNMT's models
//
// Source: https://github.com/OpenNMT/CTranslate2, `transformer_spec.py` and
// `whisper_spec.py`.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "model/ctranslate2/ctranslate2_variables.h"
#include "model/ctranslate2/ctranslate2_vocabulary.h"
#include "model/transformer_config.h"

namespace espalier {

struct TransformerSpec {
  // A config.json of transformers: model_type, sizes, features, tokens.
  json::object config;
  // Replaces the family's name in messages; "": does not.
  std::string_view name;
  // The decoder begins with an embedding of zeros. Its token, which the file
  // does not have, is the last of the vocabulary.
  bool starts_from_zero = false;
  bool has_logits_bias = false;
  // Rows of both stacks' positions, which are stored; 0: none are, or it is
  // Whisper, whose stacks differ in it.
  int num_positions = 0;
  bool is_whisper = false;
  double norm_eps = 0;  // 0: the family's

  // Sets the features that no field of config.json has.
  void Settle(TransformerConfig* to) const;
};

// The file's specification is Whisper's.
bool IsWhisperSpec(const CTranslate2File& file);

// Errors: kInvalidArgument naming the file's specification if it is not one of
// these, or a later revision.
absl::Status CheckSpecification(const CTranslate2File& file);

//   options  the config.json of the directory, which CTranslate2 writes
// REQUIRES: CheckSpecification(variables.file()) is OK.
// Errors: kInvalidArgument naming the variable or the field, and its value, if
// it is missing, wrong or not supported.
absl::StatusOr<TransformerSpec> ReadTransformerSpec(
    CTranslate2Variables& variables, const json::object& options,
    const CTranslate2Vocabulary& vocabulary);

}  // namespace espalier
