#include "model/find_tensor.h"

#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "model/fp8_rows.h"

namespace espalier {
namespace {

std::optional<DType> ParseDType(std::string_view dtype) {
  if (dtype == "F32") return DType::kFloat32;
  if (dtype == "BF16") return DType::kBFloat16;
  if (dtype == "F16") return DType::kFloat16;
  return std::nullopt;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += Concat(i > 0 ? ", " : "", shape[i]);
  }
  return text + "]";
}

absl::Status CheckShape(const LocatedTensor& located, const std::string& name,
                        const std::vector<int64_t>& shape) {
  if (located.tensor->shape == shape) return absl::OkStatus();
  return InvalidArgument(located.path, ": tensor ", name, " must have shape ",
                         ShapeText(shape), " by config.json, got ",
                         Shown(ShapeText(located.tensor->shape)));
}

absl::Status WrongDType(const LocatedTensor& located, const std::string& name,
                        std::string_view allowed) {
  return InvalidArgument(located.path, ": tensor ", name, " must have dtype ",
                         allowed, ", got ", located.tensor->dtype);
}

// Finds the scales of an e4m3 matrix: one per row, or one for the matrix.
absl::StatusOr<Fp8Scales> FindScales(const Checkpoint& checkpoint,
                                     const std::string& name, int num_rows) {
  ASSIGN_OR_RETURN(const LocatedTensor located, checkpoint.Find(name));
  const std::vector<int64_t>& shape = located.tensor->shape;
  using Shape = std::vector<int64_t>;
  if (shape != Shape{} && shape != Shape{1} && shape != Shape{num_rows} &&
      shape != Shape{num_rows, 1}) {
    return InvalidArgument(located.path, ": tensor ", name,
                           " must have shape [], [1], [", num_rows, "] or [",
                           num_rows, ", 1], got ", Shown(ShapeText(shape)));
  }
  const std::optional<DType> dtype = ParseDType(located.tensor->dtype);
  if (!dtype) return WrongDType(located, name, "BF16, F16 or F32");
  const Fp8Scales scales = {located.tensor->data, *dtype};
  RETURN_IF_ERROR(Annotate(CheckFp8Scales(scales),
                           Concat(located.path, ": tensor ", name)));
  return scales;
}

}  // namespace

absl::StatusOr<TransformerTensor> FindTensor(
    const Checkpoint& checkpoint, const std::string& name,
    const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const LocatedTensor located, checkpoint.Find(name));
  RETURN_IF_ERROR(CheckShape(located, name, shape));
  const std::optional<DType> dtype = ParseDType(located.tensor->dtype);
  if (!dtype) return WrongDType(located, name, "BF16, F16 or F32");
  return TransformerTensor{.data = located.tensor->data,
                           .dtype = *dtype,
                           .num_rows = static_cast<int>(shape[0]),
                           .name = name};
}

absl::StatusOr<TransformerTensor> FindTable(const Checkpoint& checkpoint,
                                            const TransformerConfig& config,
                                            const std::string& name,
                                            const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const LocatedTensor located, checkpoint.Find(name));
  if (!config.int8_rows || located.tensor->dtype != "I8") {
    return FindTensor(checkpoint, name, shape);
  }
  RETURN_IF_ERROR(CheckShape(located, name, shape));
  const std::string scale_name = name + "_scale";
  ASSIGN_OR_RETURN(const LocatedTensor scale, checkpoint.Find(scale_name));
  RETURN_IF_ERROR(CheckShape(scale, scale_name, {shape[0]}));
  if (scale.tensor->dtype != "F32") return WrongDType(scale, scale_name, "F32");
  return TransformerTensor{.data = located.tensor->data,
                           .dtype = *config.int8_rows,
                           .num_rows = static_cast<int>(shape[0]),
                           .int8_scales = scale.tensor->data,
                           .name = name};
}

absl::StatusOr<TransformerTensor> FindMatrix(const Checkpoint& checkpoint,
                                             const TransformerConfig& config,
                                             const std::string& name,
                                             int num_rows, int num_cols) {
  ASSIGN_OR_RETURN(const LocatedTensor located, checkpoint.Find(name));
  if (!config.has_fp8_weights || located.tensor->dtype != "F8_E4M3") {
    return FindTable(checkpoint, config, name, {num_rows, num_cols});
  }
  RETURN_IF_ERROR(CheckShape(located, name, {num_rows, num_cols}));
  TransformerTensor tensor = {.data = located.tensor->data,
                              .dtype = DType::kBFloat16,
                              .num_rows = num_rows,
                              .name = name};
  ASSIGN_OR_RETURN(tensor.fp8_scales,
                   FindScales(checkpoint, name + "_scale", num_rows));
  return tensor;
}

}  // namespace espalier
