#include "model/find_tensor_parts.h"

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

class PartsFinder {
 public:
  PartsFinder(const Checkpoint& checkpoint, const TensorOwner& owner,
              const std::string& prefix)
      : checkpoint_(checkpoint),
        owner_(owner),
        names_(owner.names()),
        prefix_(prefix) {}

  absl::StatusOr<TensorParts> Run() const {
    TensorParts found;
    for (const TableTensor& table : kTableTensors) {
      if (!Has(owner_, table.feature) || table.name == nullptr) continue;
      ASSIGN_OR_RETURN(
          found[table.table],
          FindTensor(checkpoint_,
                     Concat(prefix_, names_.*table.name, ".weight"),
                     {SizeOf(owner_, table.rows), SizeOf(owner_, table.cols)}));
    }
    for (const NormTensor& norm : kNormTensors) {
      if (!Has(owner_, norm.feature)) continue;
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
    const int size = SizeOf(owner_, norm.size);
    ASSIGN_OR_RETURN(found->weight, Vector(name, ".weight", size));
    if (owner_.config.norm != NormKind::kLayer ||
        norm.size != TensorDim::kHidden) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(found->bias, Vector(name, ".bias", size));
    return absl::OkStatus();
  }

  absl::Status FindGroup(MatrixPart matrix, MatrixTensors* found) const {
    std::vector<MatrixTensor> members;
    for (const MatrixTensor& member : kMatrixTensors) {
      if (member.matrix != matrix || !Has(owner_, member.feature)) continue;
      if (member.name != nullptr) members.push_back(member);
    }
    if (members.empty()) return absl::OkStatus();
    for (const FusedTensor& fused : kFusedTensors) {
      if (fused.matrix != matrix || (names_.*fused.name).empty()) continue;
      return FindFused(names_.*fused.name, members, found);
    }
    for (const MatrixTensor& member : members) {
      RETURN_IF_ERROR(FindProduct(names_.*member.name, member,
                                  SizeOf(owner_, member.rows), found));
    }
    return absl::OkStatus();
  }

  // The tensor of a whole group. Gates and ups are used apart.
  absl::Status FindFused(std::string_view name,
                         const std::vector<MatrixTensor>& members,
                         MatrixTensors* found) const {
    int num_rows = 0;
    for (const MatrixTensor& member : members) {
      num_rows += SizeOf(owner_, member.rows);
    }
    RETURN_IF_ERROR(FindProduct(name, members[0], num_rows, found));
    if (members[0].matrix != MatrixPart::kGateUp) return absl::OkStatus();
    for (std::vector<Tensor>* tensors : {&found->weights, &found->biases}) {
      if (tensors->empty()) continue;
      const auto [gate, up] = Split((*tensors)[0], num_rows / 2);
      *tensors = {gate, up};
    }
    return absl::OkStatus();
  }

  // Appends a matrix with the columns of `member`, and its bias.
  absl::Status FindProduct(std::string_view name, const MatrixTensor& member,
                           int num_rows, MatrixTensors* found) const {
    const std::string whole = Concat(prefix_, name, ".weight");
    const int num_cols = SizeOf(owner_, member.cols);
    Tensor weight;
    if (names_.are_transposed && owner_.layer != nullptr) {
      ASSIGN_OR_RETURN(weight,
                       FindTensor(checkpoint_, whole, {num_cols, num_rows}));
      weight.num_rows = num_rows;
      weight.is_transposed = true;
    } else if (member.feature == TensorFeature::kConvolutions) {
      ASSIGN_OR_RETURN(weight,
                       FindTable(checkpoint_, owner_.config, whole,
                                 {num_rows, num_cols / kNumTaps, kNumTaps}));
      weight.has_taps = true;
    } else {
      ASSIGN_OR_RETURN(weight, FindMatrix(checkpoint_, owner_.config, whole,
                                          num_rows, num_cols));
    }
    found->weights.push_back(std::move(weight));
    if (!HasBias(owner_.config, member)) {
      // Others of its group may have one.
      if (member.has_bias == &TransformerConfig::has_qkv_bias &&
          owner_.config.has_qkv_bias) {
        found->biases.emplace_back().num_rows = num_rows;
      }
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Tensor bias, Vector(name, ".bias", num_rows));
    found->biases.push_back(std::move(bias));
    return absl::OkStatus();
  }

  absl::StatusOr<Tensor> Vector(std::string_view name, std::string_view suffix,
                                int size) const {
    return FindTensor(checkpoint_, Concat(prefix_, name, suffix), {size});
  }

  const Checkpoint& checkpoint_;
  const TensorOwner& owner_;
  const TensorNames& names_;
  const std::string& prefix_;
};

}  // namespace

absl::StatusOr<TensorParts> FindTensorParts(const Checkpoint& checkpoint,
                                            const TensorOwner& owner,
                                            const std::string& prefix) {
  return PartsFinder(checkpoint, owner, prefix).Run();
}

}  // namespace espalier
