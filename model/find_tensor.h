// One tensor of a checkpoint, checked against what config.json says of it.
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

// Of BF16, F16 or F32.
absl::StatusOr<TransformerTensor> FindTensor(const Checkpoint& checkpoint,
                                             const std::string& name,
                                             const std::vector<int64_t>& shape);

// A matrix, `name` being that of its weight; of codes, with their scales, if
// config.json says that there are some.
absl::StatusOr<TransformerTensor> FindMatrix(const Checkpoint& checkpoint,
                                             const TransformerConfig& config,
                                             const std::string& name,
                                             int num_rows, int num_cols);

}  // namespace espalier
