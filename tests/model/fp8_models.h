// Tiny models whose layers' matrices are stored as e4m3 codes with scales.
#pragma once

#include <string>

#include "tests/model/tiny_model.h"

namespace espalier::testing {

enum class ScaleShape { kNone, kOne, kRows, kColumn };  // [], [1], [n], [n, 1]

// A quantization_config of compressed-tensors, as a JSON text.
extern const char kCompressedTensors[];

// `model` with codes and scales of `scale_dtype` in the place of its layers'
// matrices, one a row but for kNone and kOne.
TinyModel Fp8Model(const TinyModel& model,
                   ScaleShape scales = ScaleShape::kColumn,
                   const std::string& scale_dtype = "BF16");

// Returns the model with the codes' values as bfloat16.
TinyModel WidenedFp8Model(const TinyModel& fp8);

}  // namespace espalier::testing
