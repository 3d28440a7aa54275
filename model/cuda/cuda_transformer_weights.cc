#include "model/cuda/cuda_transformer_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "kernels/matmul/fp8_order.h"
#include "model/cuda/cuda_transformer_memory.h"
#include "model/cuda/cuda_weight_uploader.h"
#include "model/cuda_limits.h"
#include "model/positions.h"
#include "model/rotary_order.h"
#include "model/transformer_tensors.h"

namespace espalier {
namespace {

int RoundUp8(int size) { return (size + 7) / 8 * 8; }

// A dimension, as wide as its rows are in device memory.
int WidthOf(const CudaTransformerWidths& widths, const TensorOwner& owner,
            TensorDim dim) {
  switch (dim) {
    case TensorDim::kHidden:
      return widths.hidden;
    case TensorDim::kQueries:
      return widths.q;
    case TensorDim::kKeys:
    case TensorDim::kValues:
      return widths.kv;
    case TensorDim::kHead:
      return widths.head;
    case TensorDim::kIntermediate:
      return RoundUp8(owner.layer->intermediate_size);
    case TensorDim::kEmbedding:  // no projections (model/cuda_limits.h)
      return widths.hidden;
    case TensorDim::kPositions:  // those that are used
      return owner.is_encoder ? owner.config.encoder->max_tokens
                              : owner.config.max_context;
    case TensorDim::kMelTaps:
      return kNumTaps * widths.mel;
    case TensorDim::kHiddenTaps:
      return kNumTaps * widths.hidden;
    case TensorDim::kVocabulary:
    case TensorDim::kDistanceBuckets:
    case TensorDim::kHeads:
      return SizeOf(owner, dim);
  }
  CHECK(false) << static_cast<int>(dim);
  return 0;
}

// The place of a stored tensor in the matrix of its fuse group.
struct PlacedTensor {
  std::string_view label;
  CudaTensorPlace place;
};

// Fills in all pointers and shapes of weights, in the order in which the pass
// reads them.
class WeightPlacer {
 public:
  WeightPlacer(const TransformerConfig& config, const CudaWeightTypes& types,
               const TransformerTensors* tensors, std::byte* base)
      : config_(config),
        widths_(WidthsOf(config)),
        types_(types),
        tensors_(tensors),
        arena_(base) {}

  // Returns the bytes that they take.
  size_t Run(CudaTransformerWeights* weights) {
    weights->widths = widths_;
    PlaceStack({config_}, tensors_, weights);
    if (!config_.encoder) return arena_.size();
    PlaceStack({config_, /*is_encoder=*/true},
               tensors_ == nullptr ? nullptr : &tensors_->encoder,
               &weights->encoder);
    return arena_.size();
  }

 private:
  void PlaceStack(const TensorOwner& owner, const TransformerStackTensors* from,
                  CudaTransformerStack* stack) {
    static const TensorParts kNone;
    PlaceParts(owner, from == nullptr ? kNone : *from, stack);
    stack->layers.resize(owner.layers().size());
    if (config_.positions == PositionKind::kDistances) {
      stack->distance_biases.resize(
          config_.has_layer_distances ? stack->layers.size() : 1);
      for (float*& biases : stack->distance_biases) {
        biases =
            VectorIf(true, config_.num_heads * (2 * config_.max_distance + 1));
      }
    }
    for (size_t i = 0; i < stack->layers.size(); ++i) {
      PlaceParts(owner.OfLayer(i), from == nullptr ? kNone : from->layers[i],
                 &stack->layers[i]);
    }
  }
  CudaMatrix Matrix(int num_rows, int num_cols) {
    const DType dtype = types_.dtype;
    const size_t bytes = size_t(num_rows) * num_cols * NumBytes(dtype);
    return CudaMatrix{arena_.TakeBytes(bytes), dtype, num_rows, num_cols};
  }
  // Allocates a matrix for `tensors`.
  CudaMatrix PlaceMatrix(std::span<const TransformerTensor> tensors,
                         CoarsestFormat coarsest, int num_rows, int num_cols) {
    const bool is_fp8 =
        types_.format == WeightFormat::kFp8 ||
        (types_.dtype == DType::kBFloat16 && !tensors.empty() &&
         std::ranges::all_of(tensors, &TransformerTensor::is_fp8));
    if (coarsest != CoarsestFormat::kAny || !is_fp8 ||
        num_cols % kFp8RunInputs != 0) {
      return Matrix(num_rows, num_cols);
    }
    CudaMatrix matrix = {
        arena_.TakeBytes(size_t(RoundUp8(num_rows)) * num_cols), types_.dtype,
        num_rows, num_cols};
    matrix.fp8_scales = arena_.Take<uint16_t>(RoundUp8(num_rows));
    return matrix;
  }
  float* VectorIf(bool is_there, int size) {
    return is_there ? arena_.Take<float>(size) : nullptr;
  }

  // `from` is empty if nothing is stored.
  void PlaceParts(const TensorOwner& owner, const TensorParts& from,
                  CudaWeightParts* to) {
    for (const TableTensor& table : kTableTensors) {
      if (!Has(owner, table.feature) || !table.is_kept) continue;
      (*to)[table.table] = Matrix(WidthOf(widths_, owner, table.rows),
                                  WidthOf(widths_, owner, table.cols));
    }
    for (const NormTensor& norm : kNormTensors) {
      if (!Has(owner, norm.feature)) continue;
      const int width = WidthOf(widths_, owner, norm.size);
      (*to)[norm.norm].weight = arena_.Take<float>(width);
      (*to)[norm.norm].bias = VectorIf(
          config_.norm == NormKind::kLayer && norm.size == TensorDim::kHidden,
          width);
    }
    for (const MatrixPart matrix : kMatrixParts) {
      int num_rows = 0;
      bool has_bias = false;
      for (const MatrixTensor& member : kMatrixTensors) {
        if (member.matrix != matrix || !Has(owner, member.feature)) continue;
        num_rows += WidthOf(widths_, owner, member.rows);
        has_bias = HasBias(config_, member);
      }
      if (num_rows == 0) continue;
      const MatrixTensor& first = FirstMember(matrix);
      CudaProductWeights& product = (*to)[matrix];
      product.matrix =
          matrix == MatrixPart::kHead && config_.tie_word_embeddings
              ? (*to)[TablePart::kEmbedding]
              : PlaceMatrix(from[matrix].weights, first.coarsest, num_rows,
                            WidthOf(widths_, owner, first.cols));
      product.bias = VectorIf(has_bias, num_rows);
    }
  }

  const TransformerConfig& config_;
  const CudaTransformerWidths widths_;
  const CudaWeightTypes types_;
  const TransformerTensors* const tensors_;
  DeviceArena arena_;
};

// Uploads the tensors of a model to where they were placed.
class ModelUploader {
 public:
  ModelUploader(const TransformerConfig& config, WeightFormat format,
                const CudaTransformerWidths& widths,
                CudaWeightUploader& uploader)
      : config_(config),
        quantises_(format == WeightFormat::kFp8),
        widths_(widths),
        head_rows_(HeadRowOrder(config, widths.head)),
        uploader_(uploader) {}

  absl::Status Run(const TransformerTensors& from,
                   const CudaTransformerWeights& to) {
    RETURN_IF_ERROR(UploadStack({config_}, from, to));
    RETURN_IF_ERROR(ScaleHead(from, to));
    if (!config_.encoder) return absl::OkStatus();
    return Annotate(
        UploadStack({config_, /*is_encoder=*/true}, from.encoder, to.encoder),
        "encoder");
  }

 private:
  absl::Status UploadStack(const TensorOwner& owner,
                           const TransformerStackTensors& from,
                           const CudaTransformerStack& to) {
    RETURN_IF_ERROR(UploadParts(owner, from, to));
    for (size_t i = 0; i < to.distance_biases.size(); ++i) {
      const TensorParts& parts =
          config_.has_layer_distances ? from.layers[i] : from;
      TransformerTensor buckets = parts[TablePart::kDistanceBiases];
      buckets.num_rows *= config_.num_heads;  // all numbers
      RETURN_IF_ERROR(uploader_.UploadFloats(
          BiasesByDistance(WidenedNumbers(std::span(&buckets, 1)),
                           config_.num_heads, config_.max_distance,
                           /*sees_all=*/owner.is_encoder),
          to.distance_biases[i]));
    }
    for (size_t i = 0; i < to.layers.size(); ++i) {
      RETURN_IF_ERROR(
          Annotate(UploadParts(owner.OfLayer(i), from.layers[i], to.layers[i]),
                   Concat("layer ", i)));
    }
    return absl::OkStatus();
  }

  // Folds scales_head into the final norm, which precedes the head. REQUIRES:
  // that norm has no bias.
  absl::Status ScaleHead(const TransformerTensors& from,
                         const CudaTransformerWeights& to) {
    if (!config_.scales_head) return absl::OkStatus();
    std::vector<float> norm = NormNumbers(from[NormPart::kFinalNorm].weight);
    for (float& weight : norm) {
      weight /= std::sqrt(static_cast<float>(config_.hidden_size));
    }
    return uploader_.UploadFloats(norm, to[NormPart::kFinalNorm].weight);
  }

  absl::Status UploadParts(const TensorOwner& owner, const TensorParts& from,
                           const CudaWeightParts& to) {
    for (const TableTensor& table : kTableTensors) {
      RETURN_IF_ERROR(UploadTable(table, from[table.table], to[table.table]));
    }
    for (const NormTensor& norm : kNormTensors) {
      const bool is_of_heads = norm.size == TensorDim::kHead;
      RETURN_IF_ERROR(is_of_heads
                          ? UploadHeadNorm(from[norm.norm], to[norm.norm])
                          : UploadNorm(from[norm.norm], to[norm.norm]));
    }
    for (const MatrixPart matrix : kMatrixParts) {
      RETURN_IF_ERROR(UploadProduct(owner, matrix, from[matrix], to[matrix]));
    }
    return absl::OkStatus();
  }

  // Positions are uploaded from position 0 on: an encoder may read fewer tokens
  // than it has positions.
  absl::Status UploadTable(const TableTensor& table,
                           const TransformerTensor& from,
                           const CudaMatrix& to) {
    if (to.data == nullptr) return absl::OkStatus();
    TransformerTensor used = from;
    const size_t row_bytes = from.data.size() / from.num_rows;
    const int first_row =
        table.table == TablePart::kPositions ? config_.position_offset : 0;
    used.data =
        from.data.subspan(row_bytes * first_row, row_bytes * to.num_rows);
    used.num_rows = to.num_rows;
    return uploader_.Upload(table.label, used, to);
  }

  absl::Status UploadProduct(const TensorOwner& owner, MatrixPart matrix,
                             const MatrixTensors& from,
                             const CudaProductWeights& to) {
    const size_t num_stored = std::max(from.weights.size(), from.biases.size());
    if (num_stored == 0) return absl::OkStatus();
    const std::vector<PlacedTensor> placed = Place(owner, matrix, num_stored);
    for (size_t i = 0; i < from.weights.size(); ++i) {
      RETURN_IF_ERROR(uploader_.Upload(placed[i].label, from.weights[i],
                                       to.matrix, placed[i].place));
    }
    if (from.biases.empty()) return absl::OkStatus();
    std::vector<float> bias(to.matrix.num_rows);
    for (size_t i = 0; i < from.biases.size(); ++i) {
      if (from.biases[i].data.empty()) continue;  // 0
      PlaceRows(WidenedNumbers(std::span(&from.biases[i], 1)), placed[i].place,
                bias);
    }
    return uploader_.UploadFloats(bias, to.bias);
  }

  // Returns the places of the `num_stored` tensors of a fuse group. Rows of
  // heads have the order of head_rows_, columns of heads are padded to the head
  // width, and blocks of gate and up rows alternate.
  std::vector<PlacedTensor> Place(const TensorOwner& owner, MatrixPart matrix,
                                  size_t num_stored) const {
    std::vector<PlacedTensor> placed;
    int num_rows = 0;
    for (const MatrixTensor& member : kMatrixTensors) {
      if (member.matrix != matrix || !Has(owner, member.feature)) continue;
      PlacedTensor tensor = {member.label, {.first_row = num_rows}};
      PlaceHeads(owner, member.rows, &tensor.place);
      if (member.cols == TensorDim::kQueries) {
        tensor.place.from_run = config_.head_dim;
        tensor.place.to_run = widths_.head;
      }
      tensor.place.quantises =
          quantises_ && member.coarsest == CoarsestFormat::kAny;
      num_rows += WidthOf(widths_, owner, member.rows);
      placed.push_back(tensor);
    }
    if (matrix == MatrixPart::kGateUp && placed.size() == 2) {
      placed[1].place.first_row = kUploadedBlockRows;
      for (PlacedTensor& tensor : placed) {
        tensor.place.row_step = 2 * kUploadedBlockRows;
      }
    }
    if (placed.size() > num_stored) Fuse(matrix, num_rows, &placed);
    return placed;
  }

  // Rows of heads come from head_rows_, which counts rows of q, k and v.
  void PlaceHeads(const TensorOwner& owner, TensorDim rows,
                  CudaTensorPlace* place) const {
    int first_row = 0;
    for (const TensorDim dim :
         {TensorDim::kQueries, TensorDim::kKeys, TensorDim::kValues}) {
      const int width = WidthOf(widths_, owner, dim);
      if (dim == rows) {
        place->sources = std::span(head_rows_).subspan(first_row, width);
        return;
      }
      first_row += width;
      place->first_source += SizeOf(owner, dim);
    }
    place->first_source = 0;
  }

  // One stored tensor has the rows of the whole group, which begins with q.
  void Fuse(MatrixPart matrix, int num_rows,
            std::vector<PlacedTensor>* placed) const {
    placed->resize(1);
    PlacedTensor& whole = placed->front();
    whole.label =
        std::ranges::find(kFusedTensors, matrix, &FusedTensor::matrix)->label;
    whole.place.sources = std::span(head_rows_).first(num_rows);
  }

  // Writes a bias to the rows that CudaWeightUploader writes the matrix to.
  static void PlaceRows(std::span<const float> numbers,
                        const CudaTensorPlace& place, std::span<float> to) {
    const size_t num_rows =
        place.sources.empty() ? numbers.size() : place.sources.size();
    for (size_t i = 0; i < num_rows; ++i) {
      const int source = place.sources.empty()
                             ? static_cast<int>(i)
                             : place.sources[i] - place.first_source;
      const bool is_padding =
          !place.sources.empty() && place.sources[i] == kNoHeadRow;
      const size_t block = i / kUploadedBlockRows;
      to[place.first_row + block * place.row_step + i % kUploadedBlockRows] =
          is_padding ? 0 : numbers[source];
    }
  }

  absl::Status UploadHeadNorm(const NormTensors& from,
                              const CudaNormWeights& to) {
    if (to.weight == nullptr) return absl::OkStatus();
    const std::vector<int> order = QkRowOrder(config_, widths_.head);
    std::vector<float> ordered(widths_.head);
    PlaceRows(NormNumbers(from.weight), {.sources = order}, ordered);
    return uploader_.UploadFloats(ordered, to.weight);
  }

  std::vector<float> NormNumbers(const TransformerTensor& norm) const {
    return WidenedNumbers(std::span(&norm, 1),
                          config_.norm_adds_one ? 1.0f : 0.0f);
  }
  absl::Status UploadNorm(const NormTensors& from, const CudaNormWeights& to) {
    if (to.weight == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(
        uploader_.UploadFloats(NormNumbers(from.weight), to.weight));
    return UploadVector(from.bias, to.bias);
  }
  absl::Status UploadVector(const TransformerTensor& vector, float* to) {
    if (to == nullptr) return absl::OkStatus();
    return uploader_.UploadFloats(WidenedNumbers(std::span(&vector, 1)), to);
  }

  const TransformerConfig& config_;
  const bool quantises_;
  const CudaTransformerWidths& widths_;
  const std::vector<int> head_rows_;  // (model/rotary_order.h)
  CudaWeightUploader& uploader_;
};

int64_t SizeOf(const CudaMatrix& w) { return int64_t{w.num_rows} * w.num_cols; }

// function(matrix) of all matrices of products; some have no data.
template <typename Function>
void ForEachMatrix(const CudaTransformerWeights& weights, Function function) {
  const auto visit = [&](const CudaWeightParts& parts) {
    for (const MatrixPart matrix : kMatrixParts) function(parts[matrix].matrix);
  };
  const CudaTransformerStack& decoder = weights;
  for (const CudaTransformerStack* stack : {&decoder, &weights.encoder}) {
    visit(*stack);
    for (const CudaWeightParts& layer : stack->layers) visit(layer);
  }
}

}  // namespace

CudaTransformerWidths WidthsOf(const TransformerConfig& config) {
  const int head = CudaHeadWidth(config.head_dim);
  return {.hidden = RoundUp8(config.hidden_size),
          .intermediate = RoundUp8(config.max_intermediate_size()),
          .head = head,
          .q = config.num_heads * head,
          .kv = config.num_kv_heads * head,
          .mel = config.encoder ? RoundUp8(config.encoder->num_mel_bins) : 0};
}

int64_t MaxMatrixWeights(const CudaTransformerWeights& weights) {
  int64_t most = 0;
  ForEachMatrix(weights,
                [&](const CudaMatrix& w) { most = std::max(most, SizeOf(w)); });
  return most;
}

int64_t MaxFp8Weights(const CudaTransformerWeights& weights) {
  int64_t most = 0;
  ForEachMatrix(weights, [&](const CudaMatrix& w) {
    if (w.fp8_scales != nullptr) most = std::max(most, SizeOf(w));
  });
  return most;
}

absl::StatusOr<CudaTransformerWeights> AllocateCudaTransformerWeights(
    const TransformerConfig& config, const CudaWeightTypes& types,
    const TransformerTensors* tensors) {
  CudaTransformerWeights weights;
  weights.config = config;
  weights.types = types;
  const size_t bytes =
      WeightPlacer(config, types, tensors, nullptr).Run(&weights);
  ASSIGN_OR_RETURN(weights.memory, ZeroedDeviceMemory("weights", bytes));
  WeightPlacer(config, types, tensors, weights.memory.data()).Run(&weights);
  return weights;
}

absl::StatusOr<CudaTransformerWeights> LoadCudaTransformerWeights(
    const Checkpoint& checkpoint, const TransformerConfig& given,
    const CudaWeightTypes& types) {
  ASSIGN_OR_RETURN(const TransformerTensors tensors,
                   FindTransformerTensors(checkpoint, given));
  TransformerConfig config = given;
  config.tie_word_embeddings = tensors[MatrixPart::kHead].weights.empty();
  ASSIGN_OR_RETURN(CudaTransformerWeights weights,
                   AllocateCudaTransformerWeights(config, types, &tensors));
  RETURN_IF_ERROR(
      Annotate(UploadTransformerTensors(tensors, weights), checkpoint.path()));
  return weights;
}

absl::Status UploadTransformerTensors(const TransformerTensors& tensors,
                                      const CudaTransformerWeights& weights) {
  const CudaTransformerWidths& widths = weights.widths;
  ASSIGN_OR_RETURN(
      CudaWeightUploader uploader,
      CudaWeightUploader::Create(std::max({widths.hidden, widths.intermediate,
                                           widths.q, widths.convolution()})));
  return ModelUploader(weights.config, weights.types.format, widths, uploader)
      .Run(tensors, weights);
}

}  // namespace espalier
