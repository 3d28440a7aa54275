// Finds one tensor of a checkpoint and checks it against config.json.
//
// Errors: kInvalidArgument naming the file, the tensor and the value, if it is
// missing, or its shape or dtype is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Finds a BF16, F16 or F32 tensor.
absl::StatusOr<TransformerTensor> FindTensor(const Checkpoint& checkpoint,
                                             const std::string& name,
                                             const std::vector<int64_t>& shape);

// Finds embeddings or a convolution's weights, which may be int8 codes with a
// scale for each row if the config says so.
absl::StatusOr<TransformerTensor> FindTable(const Checkpoint& checkpoint,
                                            const TransformerConfig& config,
                                            const std::string& name,
                                            const std::vector<int64_t>& shape);

// Finds a weight matrix, which may be as a table's, or e4m3 codes with scales
// if config.json says so. `name` is that of the weight tensor.
absl::StatusOr<TransformerTensor> FindMatrix(const Checkpoint& checkpoint,
                                             const TransformerConfig& config,
                                             const std::string& name,
                                             int num_rows, int num_cols);

}  // namespace espalier
