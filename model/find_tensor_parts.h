// Finds the tensors of one owner in a checkpoint by the names of its family.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/transformer_parts.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Finds the tensors of a layer, or those outside of the layers of a decoder or
// an encoder, but for those with rules of their own, which have no name in the
// tables (model/transformer_parts.h). They point into the files of
// `checkpoint`.
//   prefix  put before each name: "model.layers.3."
// Errors: as FindTensor (model/find_tensor.h).
absl::StatusOr<TensorParts> FindTensorParts(const Checkpoint& checkpoint,
                                            const TensorOwner& owner,
                                            const std::string& prefix);

}  // namespace espalier
