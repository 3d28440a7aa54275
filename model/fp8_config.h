// Reads quantization_config of a config.json: matrices stored as e4m3 codes
// with scales (fp8_rows.h), in the formats of two tools,
//
//   {"quant_method": "compressed-tensors", "format": "float-quantized",
//    "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 8,
//        "strategy": "channel"}, "input_activations": {"dynamic": true}}},
//    "ignore": ["lm_head"]}
//   {"quant_method": "fp8", "activation_scheme": "dynamic"}
//
// The dtype of each tensor in the checkpoint says which matrices are quantised.
// Dynamic quantisation of activations is not applied: inputs of products keep
// their precision, and results are more exact than the format asks for.
#pragma once

#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier {

// Returns true if the config has an e4m3 format, false if it has none.
// Errors: kInvalidArgument naming the field and its value: other methods,
// formats and types, scales of blocks or groups, zero points, stored scales of
// activations or of a cache.
absl::StatusOr<bool> ReadFp8Config(const json::object& config);

}  // namespace espalier
