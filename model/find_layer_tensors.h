// Finds the tensors of one layer of a checkpoint by the names of its family.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Finds the tensors of a layer. They point into the files of `checkpoint`.
//   names   tensor names of the layer's encoder or decoder
//   prefix  put before each name: "model.layers.3."
// Errors: as FindTensor (model/find_tensor.h).
absl::StatusOr<TransformerLayerTensors> FindLayerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    const LayerConfig& layer, const TensorNames& names,
    const std::string& prefix);

}  // namespace espalier
