#include "model/find_layer_tensors.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/find_tensor.h"

namespace espalier {
namespace {

using Tensor = TransformerTensor;

// The tensor's first `num_rows` rows, and the rest.
std::pair<Tensor, Tensor> Split(const Tensor& tensor, int num_rows) {
  const size_t row_bytes = tensor.data.size() / tensor.num_rows;
  Tensor first = tensor, second = tensor;
  first.num_rows = num_rows;
  first.data = tensor.data.first(num_rows * row_bytes);
  second.num_rows = tensor.num_rows - num_rows;
  second.data = tensor.data.subspan(num_rows * row_bytes);
  const Fp8Scales& scales = tensor.fp8_scales;
  const size_t scale_bytes = NumBytes(scales.dtype);
  if (scales.data.size() > scale_bytes) {  // one a row
    first.fp8_scales.data = scales.data.first(num_rows * scale_bytes);
    second.fp8_scales.data = scales.data.subspan(num_rows * scale_bytes);
  }
  return {first, second};
}

// Finds the tensors of one layer.
class LayerFinder {
 public:
  LayerFinder(const Checkpoint& checkpoint, const TransformerConfig& config,
              const LayerConfig& layer, const TensorNames& names,
              std::string prefix)
      : checkpoint_(checkpoint),
        config_(config),
        layer_(layer),
        names_(names),
        prefix_(std::move(prefix)) {}

  absl::StatusOr<TransformerLayerTensors> Run() const {
    TransformerLayerTensors found;
    for (const NormTensor& norm : kNormTensors) {
      if (!Has(config_, layer_, norm.feature)) continue;
      RETURN_IF_ERROR(FindNorm(norm, &found[norm.norm]));
    }
    for (const MatrixPart matrix : kMatrixParts) {
      RETURN_IF_ERROR(FindGroup(matrix, &found[matrix]));
    }
    return found;
  }

 private:
  absl::Status FindNorm(const NormTensor& norm, NormTensors* found) const {
    const std::string_view name = names_.*norm.name;
    const int size = SizeOf(config_, layer_, norm.size);
    ASSIGN_OR_RETURN(found->weight, Vector(name, ".weight", size));
    if (config_.norm != NormKind::kLayer || norm.size != LayerDim::kHidden) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(found->bias, Vector(name, ".bias", size));
    return absl::OkStatus();
  }

  absl::Status FindGroup(MatrixPart matrix, MatrixTensors* found) const {
    std::vector<MatrixTensor> members;
    for (const MatrixTensor& member : kMatrixTensors) {
      if (member.matrix != matrix || !Has(config_, layer_, member.feature)) {
        continue;
      }
      members.push_back(member);
    }
    for (const FusedTensor& fused : kFusedTensors) {
      if (fused.matrix != matrix || (names_.*fused.name).empty()) continue;
      return FindFused(names_.*fused.name, members, found);
    }
    for (const MatrixTensor& member : members) {
      RETURN_IF_ERROR(FindProduct(names_.*member.name,
                                  SizeOf(config_, layer_, member.rows),
                                  SizeOf(config_, layer_, member.cols),
                                  config_.*member.has_bias, found));
    }
    return absl::OkStatus();
  }

  // The tensor of a whole group. Gates and ups are used apart.
  absl::Status FindFused(std::string_view name,
                         const std::vector<MatrixTensor>& members,
                         MatrixTensors* found) const {
    int num_rows = 0;
    for (const MatrixTensor& member : members) {
      num_rows += SizeOf(config_, layer_, member.rows);
    }
    const MatrixTensor& first = members[0];
    RETURN_IF_ERROR(FindProduct(name, num_rows,
                                SizeOf(config_, layer_, first.cols),
                                config_.*first.has_bias, found));
    if (first.matrix != MatrixPart::kGateUp) return absl::OkStatus();
    for (std::vector<Tensor>* tensors : {&found->weights, &found->biases}) {
      if (tensors->empty()) continue;
      const auto [gate, up] = Split((*tensors)[0], num_rows / 2);
      *tensors = {gate, up};
    }
    return absl::OkStatus();
  }

  // Appends a matrix and its bias.
  absl::Status FindProduct(std::string_view name, int num_rows, int num_cols,
                           bool has_bias, MatrixTensors* found) const {
    const std::string whole = Concat(prefix_, name, ".weight");
    Tensor weight;
    if (names_.are_transposed) {
      ASSIGN_OR_RETURN(weight,
                       FindTensor(checkpoint_, whole, {num_cols, num_rows}));
      weight.num_rows = num_rows;
      weight.is_transposed = true;
    } else {
      ASSIGN_OR_RETURN(
          weight, FindMatrix(checkpoint_, config_, whole, num_rows, num_cols));
    }
    found->weights.push_back(std::move(weight));
    if (!has_bias) return absl::OkStatus();
    ASSIGN_OR_RETURN(Tensor bias, Vector(name, ".bias", num_rows));
    found->biases.push_back(std::move(bias));
    return absl::OkStatus();
  }

  absl::StatusOr<Tensor> Vector(std::string_view name, std::string_view suffix,
                                int size) const {
    return FindTensor(checkpoint_, Concat(prefix_, name, suffix), {size});
  }

  const Checkpoint& checkpoint_;
  const TransformerConfig& config_;
  const LayerConfig& layer_;
  const TensorNames& names_;
  const std::string prefix_;
};

}  // namespace

absl::StatusOr<TransformerLayerTensors> FindLayerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    const LayerConfig& layer, const TensorNames& names,
    const std::string& prefix) {
  return LayerFinder(checkpoint, config, layer, names, prefix).Run();
}

}  // namespace espalier
