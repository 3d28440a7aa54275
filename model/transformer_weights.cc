#include "model/transformer_weights.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/load_as_float.h"
#include "base/status.h"
#include "model/fp8_rows.h"
#include "model/int8_rows.h"
#include "model/positions.h"
#include "model/transformer_tensors.h"

namespace espalier {
namespace {

using Tensor = TransformerTensor;

// Packs matrices, those of layers in the order in which a step reads them, and
// says how far it is.
class MatrixPacker {
 public:
  MatrixPacker(const WeightOptions& options, int64_t total_bytes)
      : pool_(options.pool != nullptr ? *options.pool : one_thread_),
        progress_(options.progress),
        format_(options.format),
        total_bytes_(total_bytes),
        arena_(static_cast<size_t>(total_bytes)) {}

  // The tensors, each [num_rows, num_cols], stacked.
  PackedMatrix Pack(std::span<const Tensor> tensors, int num_cols,
                    CoarsestFormat coarsest) {
    return PackAs(FormatOf(coarsest), tensors, num_cols);
  }

  // The first error; matrices that were packed after it are invalid.
  const absl::Status& status() const { return status_; }

 private:
  WeightFormat FormatOf(CoarsestFormat coarsest) const {
    if (coarsest == CoarsestFormat::kAny) return format_;
    if (coarsest == CoarsestFormat::kAsStored) return WeightFormat::kAsStored;
    return format_ == WeightFormat::kInt4  ? WeightFormat::kInt8
           : format_ == WeightFormat::kFp8 ? WeightFormat::kAsStored
                                           : format_;
  }

  PackedMatrix PackAs(WeightFormat format, std::span<const Tensor> tensors,
                      int num_cols) {
    std::vector<PackedMatrix::Part> parts;
    // The data of some parts.
    std::vector<std::vector<uint16_t>> widened;
    std::vector<std::vector<std::byte>> dequantised;
    std::vector<std::vector<std::byte>> in_order;
    for (const Tensor& given : tensors) {
      Tensor tensor = given;
      if (tensor.is_int8()) {
        dequantised.push_back(WidenInt8(tensor, pool_));
        tensor.data = dequantised.back();
        tensor.int8_scales = {};
      }
      PackedMatrix::Part part = {tensor.data, tensor.dtype, tensor.num_rows,
                                 tensor.is_transposed};
      if (tensor.is_fp8() || format == WeightFormat::kFp8) {
        widened.push_back(Widen(tensor));
        part = {std::as_bytes(std::span(widened.back())), DType::kBFloat16,
                tensor.num_rows};
      }
      if (tensor.has_taps) {
        in_order.push_back(InOrderOfFrames(tensor));
        part.data = in_order.back();
      }
      parts.push_back(part);
      done_bytes_ += static_cast<int64_t>(given.data.size());
    }
    PackedMatrix matrix = PackedMatrix::Pack(
        parts, num_cols, pool_,
        format == WeightFormat::kFp8 ? WeightFormat::kAsStored : format,
        &arena_);
    // Else both would be in memory, the file's and the packed ones.
    for (const Tensor& tensor : tensors) MappedFile::DropPages(tensor.data);
    if (progress_) progress_(done_bytes_, total_bytes_);
    return matrix;
  }

  // A convolution's numbers, the frames of a row one after another.
  static std::vector<std::byte> InOrderOfFrames(const Tensor& tensor) {
    const size_t size = NumBytes(tensor.dtype);
    const size_t num_channels = tensor.num_cols() / kNumTaps;
    std::vector<std::byte> numbers(tensor.data.size());
    auto to = numbers.begin();
    for (int row = 0; row < tensor.num_rows; ++row) {
      const size_t begin = row * tensor.num_cols();
      for (int tap = 0; tap < kNumTaps; ++tap) {
        for (size_t channel = 0; channel < num_channels; ++channel) {
          const size_t from = (begin + channel * kNumTaps + tap) * size;
          to = std::ranges::copy(tensor.data.subspan(from, size), to).out;
        }
      }
    }
    return numbers;
  }

  // Dequantises the tensor's e4m3 codes, quantising it first if it has none.
  std::vector<uint16_t> Widen(const Tensor& tensor) {
    auto widened = WidenFp8(tensor, pool_);
    if (widened.ok()) return *std::move(widened);
    if (status_.ok()) status_ = widened.status();
    return std::vector<uint16_t>(tensor.num_rows * tensor.num_cols());
  }

  ThreadPool one_thread_;
  ThreadPool& pool_;
  const LoadProgress& progress_;
  const WeightFormat format_;
  const int64_t total_bytes_;
  int64_t done_bytes_ = 0;
  PanelArena arena_;
  absl::Status status_;
};

// Bytes of the tensors that are packed.
int64_t NumPackedBytes(const TensorParts& parts) {
  size_t sum = 0;
  for (const MatrixPart matrix : kMatrixParts) {
    for (const Tensor& tensor : parts[matrix].weights) {
      sum += tensor.data.size();
    }
  }
  return static_cast<int64_t>(sum);
}
int64_t NumPackedBytes(const TransformerTensors& tensors) {
  int64_t sum = 0;
  for (const TransformerStackTensors* stack :
       {static_cast<const TransformerStackTensors*>(&tensors),
        &tensors.encoder}) {
    sum += NumPackedBytes(static_cast<const TensorParts&>(*stack));
    for (const TensorParts& layer : stack->layers) {
      sum += NumPackedBytes(layer);
    }
  }
  return sum;
}

void AppendWidened(const Tensor& tensor, std::vector<float>* to) {
  if (tensor.data.empty()) {
    to->insert(to->end(), tensor.num_rows, 0.0f);
    return;
  }
  for (int i = 0; i < tensor.num_rows; ++i) {
    to->push_back(LoadAsFloat(&tensor.data[size_t(i) * NumBytes(tensor.dtype)],
                              tensor.dtype));
  }
}

std::vector<float> Widen(std::span<const Tensor> tensors) {
  std::vector<float> result;
  for (const Tensor& tensor : tensors) AppendWidened(tensor, &result);
  return result;
}

// All numbers of a matrix.
std::vector<float> WidenAll(const Tensor& matrix, int num_cols) {
  std::vector<float> result;
  Tensor all = matrix;
  all.num_rows *= num_cols;
  AppendWidened(all, &result);
  return result;
}

NormWeights MakeNorm(const TransformerConfig& config,
                     const NormTensors& tensors) {
  NormWeights norm = {Widen(std::span(&tensors.weight, 1)),
                      Widen(std::span(&tensors.bias, 1))};
  if (config.norm_adds_one) {
    for (float& value : norm.weight) value += 1.0f;
  }
  return norm;
}

void PackParts(const TensorOwner& owner, const TensorParts& tensors,
               MatrixPacker* matrices, WeightParts* weights) {
  for (const TableTensor& table : kTableTensors) {
    const Tensor& tensor = tensors[table.table];
    if (tensor.num_rows == 0 || !table.is_kept) continue;
    const int num_cols = SizeOf(owner, table.cols);
    (*weights)[table.table] =
        tensor.is_int8() ? EmbeddingTable(tensor.data, tensor.int8_scales,
                                          tensor.dtype, num_cols)
                         : EmbeddingTable(tensor.data, tensor.dtype, num_cols);
  }
  for (const NormTensor& norm : kNormTensors) {
    (*weights)[norm.norm] = MakeNorm(owner.config, tensors[norm.norm]);
  }
  for (const MatrixPart matrix : kMatrixParts) {
    const MatrixTensors& group = tensors[matrix];
    if (group.weights.empty()) continue;
    const MatrixTensor& first = FirstMember(matrix);
    (*weights)[matrix] = {
        matrices->Pack(group.weights, SizeOf(owner, first.cols),
                       first.coarsest),
        Widen(group.biases)};
  }
}

void PackStack(const TensorOwner& owner, const TransformerStackTensors& tensors,
               MatrixPacker* matrices, TransformerStackWeights* weights) {
  const TransformerConfig& config = owner.config;
  if (config.positions == PositionKind::kDistances) {
    const auto add = [&](const TensorParts& parts) {
      weights->distance_biases.push_back(BiasesByDistance(
          WidenAll(parts[TablePart::kDistanceBiases], config.num_heads),
          config.num_heads, config.max_distance,
          /*sees_all=*/owner.is_encoder));
    };
    if (config.has_layer_distances) {
      std::ranges::for_each(tensors.layers, add);
    } else {
      add(tensors);
    }
  }
  weights->layers.resize(tensors.layers.size());
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    PackParts(owner.OfLayer(i), tensors.layers[i], matrices,
              &weights->layers[i]);
  }
  PackParts(owner, tensors, matrices, weights);
}

absl::StatusOr<TransformerWeights> Load(
    std::shared_ptr<const Checkpoint> checkpoint,
    const TransformerConfig& config, const WeightOptions& options) {
  ASSIGN_OR_RETURN(TransformerTensors tensors,
                   FindTransformerTensors(*checkpoint, config));
  std::vector<Tensor>& head = tensors[MatrixPart::kHead].weights;
  if (head.empty()) head = {tensors[TablePart::kEmbedding]};
  MatrixPacker matrices(options, NumPackedBytes(tensors));
  TransformerWeights weights;
  weights.config = config;
  weights.format = options.format;
  weights.checkpoint = std::move(checkpoint);
  if (config.encoder) {
    PackStack({config, /*is_encoder=*/true}, tensors.encoder, &matrices,
              &weights.encoder);
  }
  PackStack({config}, tensors, &matrices, &weights);
  RETURN_IF_ERROR(Annotate(matrices.status(), weights.checkpoint->path()));
  return weights;
}

}  // namespace

absl::StatusOr<TransformerWeights> LoadTransformerWeights(
    std::shared_ptr<const Checkpoint> checkpoint,
    const TransformerConfig& config, const WeightOptions& options) {
  try {
    return Load(checkpoint, config, options);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(checkpoint->path(),
                             ": not enough memory for the weights");
  }
}

absl::StatusOr<std::shared_ptr<const TransformerWeights>>
LoadTransformerWeights(const std::string& directory,
                       const WeightOptions& options) {
  ASSIGN_OR_RETURN(const TransformerConfig config,
                   ReadTransformerConfig(directory));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(directory));
  ASSIGN_OR_RETURN(TransformerWeights weights,
                   LoadTransformerWeights(std::make_shared<const Checkpoint>(
                                              std::move(checkpoint)),
                                          config, options));
  return std::make_shared<const TransformerWeights>(std::move(weights));
}

}  // namespace espalier
