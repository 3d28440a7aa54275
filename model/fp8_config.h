// quantization_config of a config.json: whether matrices are stored as e4m3
// codes with scales (fp8_rows.h), as the formats of two tools have them,
//
//   {"quant_method": "compressed-tensors", "format": "float-quantized",
//    "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 8,
//        "strategy": "channel"}, "input_activations": {"dynamic": true}}},
//    "ignore": ["lm_head"]}
//   {"quant_method": "fp8", "activation_scheme": "dynamic"}
//
// Which matrices those are their tensors say. That inputs of products are to be
// quantised too, row by row when they are made ("dynamic"), is left undone: it
// makes products faster elsewhere, and results less exact.
#pragma once

#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier {

// Whether there is one; of another kind it is an error.
// Errors: kInvalidArgument naming the field and its value: other methods,
// formats and types, scales of blocks or groups, zero points, stored scales of
// activations or of a cache.
absl::StatusOr<bool> ReadFp8Config(const json::object& config);

}  // namespace espalier
