#include "model/ctranslate2/ctranslate2_variables.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += Concat(i > 0 ? ", " : "", shape[i]);
  }
  return text + "]";
}

absl::Status CheckShape(const std::string& name, const StoredTensor& tensor,
                        const std::vector<int64_t>& shape) {
  if (tensor.shape == shape) return absl::OkStatus();
  return InvalidArgument("variable ", name, " must have shape ",
                         ShapeText(shape), ", got ",
                         Shown(ShapeText(tensor.shape)));
}

absl::Status WrongType(const std::string& name, const StoredTensor& tensor,
                       std::string_view allowed) {
  return InvalidArgument("variable ", name, " must have dtype ", allowed,
                         ", got ", tensor.dtype);
}

bool IsFloat(const StoredTensor& tensor) {
  return tensor.dtype == "F32" || tensor.dtype == "F16" ||
         tensor.dtype == "BF16";
}

template <typename T>
T NumberAt(std::span<const std::byte> data, size_t i) {
  T number;
  std::memcpy(&number, &data[i * sizeof(T)], sizeof(T));
  return number;
}

absl::Status CheckScales(const std::string& name, const StoredTensor& scale) {
  for (size_t i = 0; i < scale.data.size() / sizeof(float); ++i) {
    const auto value = NumberAt<float>(scale.data, i);
    if (std::isfinite(value) && value > 0) continue;
    return InvalidArgument("variable ", name, " must be positive, got ", value,
                           " of row ", i);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<const StoredTensor*> CTranslate2Variables::Any(
    const std::string& name) {
  const StoredTensor* const tensor = file_.Find(name);
  if (tensor == nullptr) {
    return InvalidArgument("variable ", name, " is missing");
  }
  used_.insert(name);
  used_.insert(file_.NameOf(name));
  return tensor;
}

absl::StatusOr<double> CTranslate2Variables::Number(const std::string& name) {
  ASSIGN_OR_RETURN(const StoredTensor* const tensor, Any(name));
  RETURN_IF_ERROR(CheckShape(name, *tensor, {}));
  const std::span<const std::byte> data = tensor->data;
  if (tensor->dtype == "I8") return NumberAt<int8_t>(data, 0);
  if (tensor->dtype == "I16") return NumberAt<int16_t>(data, 0);
  if (tensor->dtype == "I32") return NumberAt<int32_t>(data, 0);
  if (tensor->dtype != "F32") {
    return WrongType(name, *tensor, "I8, I16, I32 or F32");
  }
  const double number = NumberAt<float>(data, 0);
  if (std::isfinite(number)) return number;
  return InvalidArgument("variable ", name, " must be finite, got ", number);
}

absl::StatusOr<std::optional<double>> CTranslate2Variables::NumberIfThere(
    const std::string& name) {
  if (!Has(name)) return std::nullopt;
  ASSIGN_OR_RETURN(const double number, Number(name));
  return number;
}

absl::StatusOr<StoredTensor> CTranslate2Variables::Floats(
    const std::string& name, const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const StoredTensor* const tensor, Any(name));
  RETURN_IF_ERROR(CheckShape(name, *tensor, shape));
  if (!IsFloat(*tensor)) return WrongType(name, *tensor, "F32, F16 or BF16");
  return *tensor;
}

absl::StatusOr<CTranslate2Variables::Matrix> CTranslate2Variables::MatrixOf(
    const std::string& name, const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const StoredTensor* const tensor, Any(name));
  RETURN_IF_ERROR(CheckShape(name, *tensor, shape));
  if (IsFloat(*tensor)) return Matrix{*tensor, std::nullopt};
  if (tensor->dtype != "I8") {
    return WrongType(name, *tensor, "F32, F16, BF16 or I8");
  }
  // An alias of the matrix has no scale of its own.
  const std::string scale_name = file_.NameOf(name) + "_scale";
  ASSIGN_OR_RETURN(const StoredTensor* const scale, Any(scale_name));
  RETURN_IF_ERROR(CheckShape(scale_name, *scale, {shape[0]}));
  if (scale->dtype != "F32") return WrongType(scale_name, *scale, "F32");
  RETURN_IF_ERROR(CheckScales(scale_name, *scale));
  return Matrix{*tensor, *scale};
}

absl::Status CTranslate2Variables::CheckAllAreUsed() const {
  const auto check = [this](const std::string& name) -> absl::Status {
    if (used_.contains(name)) return absl::OkStatus();
    return InvalidArgument("variable ", Shown(name), " is not supported");
  };
  for (const auto& [name, tensor] : file_.variables()) {
    RETURN_IF_ERROR(check(name));
  }
  for (const auto& [alias, name] : file_.aliases()) {
    // The scale of an aliased matrix may be aliased, too.
    if (name.ends_with("_scale")) continue;
    RETURN_IF_ERROR(check(alias));
  }
  return absl::OkStatus();
}

}  // namespace espalier
