// The tensors of one layer of a checkpoint, under the names of its family.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Those whose names begin with `prefix`, of an encoder's layer or a decoder's,
// whose names these are.
// Errors: as FindTensor.
absl::StatusOr<TransformerLayerTensors> FindLayerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    const TensorNames& names, const std::string& prefix, int intermediate_size);

}  // namespace espalier
