// The tensors of one layer of a checkpoint, under the names of its family.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Finds the tensors of a layer of this kind, whose names begin with `prefix`.
//   names  those of the encoder or the decoder that has the layer
// Errors: as FindTensor.
absl::StatusOr<TransformerLayerTensors> FindLayerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    const LayerConfig& layer, const TensorNames& names,
    const std::string& prefix);

}  // namespace espalier
