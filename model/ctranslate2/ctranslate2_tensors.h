// The tensors of a CTranslate2 file under the names that a family of
// transformers gives them. They are views of the file: q, k and v, stored as
// one matrix, are its rows. A matrix X.weight of int8 (dtype "I8") has a tensor
// X.weight_scale of its rows, that it is divided by.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ctranslate2/ctranslate2_variables.h"
#include "model/shared_bytes.h"
#include "model/ctranslate2/transformer_spec.h"
#include "model/safetensors.h"
#include "model/transformer_config.h"

namespace espalier {

struct CTranslate2Tensors {
  std::map<std::string, StoredTensor> tensors;
  // The embedding, the head and the bias of logits with a row more, if
  // `starts_from_zero`. Its logit is -inf: the token cannot be generated.
  std::vector<SharedBytes> copies;
};

// The result lives as long as the file of `variables`.
// Errors: kInvalidArgument naming the variable and the value, if one is
// missing, has another shape than those before it, or is not supported;
// kResourceExhausted if memory runs out.
absl::StatusOr<CTranslate2Tensors> NameCTranslate2Tensors(
    CTranslate2Variables& variables, const TransformerSpec& spec,
    const TransformerConfig& config);

}  // namespace espalier
