#include "tests/model/fp8_models.h"

#include <span>
#include <string_view>
#include <vector>

#include "kernels/matmul/fp8.h"

namespace espalier::testing {
namespace {

constexpr std::string_view kMatrixEnd = "_proj.weight";

TinyTensor ScalesOf(int64_t num_rows, ScaleShape shape,
                    const std::string& dtype) {
  switch (shape) {
    case ScaleShape::kNone:
      return {dtype, {}, {}};
    case ScaleShape::kOne:
      return {dtype, {1}, {}};
    case ScaleShape::kRows:
      return {dtype, {num_rows}, {}};
    case ScaleShape::kColumn:
      break;
  }
  return {dtype, {num_rows, 1}, {}};
}

}  // namespace

const char kCompressedTensors[] =
    R"({"quant_method": "compressed-tensors", "format": "float-quantized",
        "config_groups": {"group_0": {
            "targets": ["Linear"],
            "weights": {"type": "float", "num_bits": 8, "strategy": "channel",
                        "symmetric": true, "dynamic": false,
                        "group_size": null, "actorder": null},
            "input_activations": {"type": "float", "num_bits": 8,
                                  "strategy": "token", "dynamic": true},
            "output_activations": null}},
        "ignore": ["lm_head"], "kv_cache_scheme": null,
        "quantization_status": "compressed", "sparsity_config": {}})";

TinyModel Fp8Model(const TinyModel& model, ScaleShape shape,
                   const std::string& scale_dtype) {
  TinyModel fp8 = model;
  fp8.config["quantization_config"] = *ParseJson(kCompressedTensors);
  for (const auto& [name, given] : model.tensors) {
    if (!name.ends_with(kMatrixEnd)) continue;
    TinyTensor& tensor = fp8.tensors[name];
    const int64_t num_rows = tensor.shape[0];
    TinyTensor scales = ScalesOf(num_rows, shape, scale_dtype);
    const size_t size = shape == ScaleShape::kNone || shape == ScaleShape::kOne
                            ? given.values.size()
                            : tensor.shape[1];
    for (size_t begin = 0; begin < given.values.size(); begin += size) {
      const auto numbers = std::span(given.values).subspan(begin, size);
      const float scale = Fp8Scale(numbers);
      std::vector<uint8_t> codes(size);
      QuantizeFp8(numbers, scale, codes.data());
      for (size_t i = 0; i < size; ++i) {
        tensor.values[begin + i] = FloatFromFp8(codes[i]);
      }
      scales.values.push_back(scale);
    }
    tensor.dtype = "F8_E4M3";
    fp8.tensors[name + "_scale"] = scales;
  }
  return fp8;
}

TinyModel WidenedFp8Model(const TinyModel& fp8) {
  TinyModel widened = fp8;
  widened.config.erase("quantization_config");
  for (const auto& [name, stored] : fp8.tensors) {
    if (stored.dtype != "F8_E4M3") continue;
    const std::vector<float>& scales = fp8.tensors.at(name + "_scale").values;
    TinyTensor& tensor = widened.tensors[name];
    tensor.dtype = "BF16";
    const size_t size = stored.values.size() / scales.size();
    for (size_t i = 0; i < stored.values.size(); ++i) {
      tensor.values[i] = RoundToBFloat16(stored.values[i] * scales[i / size]);
    }
    widened.tensors.erase(name + "_scale");
  }
  return widened;
}

}  // namespace espalier::testing
