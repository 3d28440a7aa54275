// WeightUpdate: other weights for a model that is loaded, of the same sizes and
// features: all of another directory, or some tensors by name.
//
//   WeightUpdate update;
//   update.tensors.push_back(
//       {"model.norm.weight", {"F32", {256}, AsBytes(norm)}});
//   ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint,
//                    UpdatedCheckpoint(weights->checkpoint, "dir", update));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"

namespace espalier {

struct NamedTensor {
  std::string name;  // as in the model's checkpoint
  // F32, BF16 or F16, in host memory, row-major. Its data is read until the
  // update has ended, and copied if the update succeeds.
  StoredTensor tensor;
};

// Exactly one of them is set.
struct WeightUpdate {
  // A model directory: its weights replace all. The fields that its config.json
  // and that of the model both have must be equal, but for names and types.
  std::string directory = {};
  // These replace tensors of these names; the others keep their values.
  std::vector<NamedTensor> tensors = {};
};

// Returns the checkpoint of a model after an update, for its config.
//   current    the model's
//   directory  the model's
// Errors: kInvalidArgument if none or both of the sources are set, naming the
// tensor that is given twice, or whose data has another size than its shape; or
// naming the field of config.json that differs; as Checkpoint::Open.
absl::StatusOr<std::shared_ptr<const Checkpoint>> UpdatedCheckpoint(
    std::shared_ptr<const Checkpoint> current, const std::string& directory,
    const WeightUpdate& update);

}  // namespace espalier
