// Finds the tensors of one layer of a checkpoint by the names of its family.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Finds the tensors of a layer; `prefix` is the beginning of their names.
//   names  tensor names of the encoder or decoder that the layer belongs to
// Errors: as FindTensor.
absl::StatusOr<TransformerLayerTensors> FindLayerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    const LayerConfig& layer, const TensorNames& names,
    const std::string& prefix);

}  // namespace espalier
