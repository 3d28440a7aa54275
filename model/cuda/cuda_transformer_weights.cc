#include "model/cuda/cuda_transformer_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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
    weights->embedding = Matrix(config_.vocab_size, widths_.hidden);
    weights->head = config_.tie_word_embeddings
                        ? weights->embedding
                        : Matrix(config_.vocab_size, widths_.hidden);
    weights->logits_bias =
        VectorIf(config_.has_logits_bias, config_.vocab_size);
    PlaceStack(config_.num_layers, config_.max_context,
               config_.intermediate_size, tensors_, weights);
    if (!config_.encoder) return arena_.size();
    for (size_t i = 0; i < weights->layers.size(); ++i) {
      PlaceCross(tensors_ == nullptr ? nullptr : &tensors_->layers[i],
                 &weights->layers[i]);
    }
    PlaceStack(config_.encoder->num_layers, config_.encoder->max_tokens,
               config_.encoder->intermediate_size,
               tensors_ == nullptr ? nullptr : &tensors_->encoder,
               &weights->encoder);
    return arena_.size();
  }

 private:
  void PlaceStack(int num_layers, int num_positions, int intermediate_size,
                  const TransformerStackTensors* from,
                  CudaTransformerStack* stack) {
    if (config_.positions == PositionKind::kLearned) {
      stack->positions = Matrix(num_positions, widths_.hidden);
    }
    if (config_.has_embedding_norm) stack->embedding_norm = Norm();
    stack->distance_biases =
        VectorIf(config_.positions == PositionKind::kDistances,
                 config_.num_heads * (2 * config_.max_distance + 1));
    if (!config_.norms_sums) stack->final_norm = Norm();
    stack->layers.resize(num_layers);
    for (int i = 0; i < num_layers; ++i) {
      PlaceLayer(RoundUp8(intermediate_size),
                 from == nullptr ? nullptr : &from->layers[i],
                 &stack->layers[i]);
    }
  }
  CudaMatrix Matrix(int num_rows, int num_cols) {
    const DType dtype = types_.dtype;
    const size_t bytes = size_t(num_rows) * num_cols * NumBytes(dtype);
    return CudaMatrix{arena_.TakeBytes(bytes), dtype, num_rows, num_cols};
  }
  // Of a layer, made of `tensors`.
  CudaMatrix LayerMatrix(std::span<const TransformerTensor> tensors,
                         int num_rows, int num_cols) {
    const bool is_fp8 =
        types_.format == WeightFormat::kFp8 ||
        (types_.dtype == DType::kBFloat16 && !tensors.empty() &&
         std::ranges::all_of(tensors, &TransformerTensor::is_fp8));
    if (!is_fp8 || num_cols % kFp8RunInputs != 0) {
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
  CudaNormWeights Norm() {
    CudaNormWeights norm = {arena_.Take<float>(widths_.hidden)};
    norm.bias = VectorIf(config_.norm == NormKind::kLayer, widths_.hidden);
    return norm;
  }

  // `given` is null if nothing is stored.
  void PlaceLayer(int intermediate, const TransformerLayerTensors* given,
                  CudaTransformerLayer* layer) {
    static const TransformerLayerTensors kNone;
    const TransformerLayerTensors& from = given == nullptr ? kNone : *given;
    const int hidden = widths_.hidden;
    layer->attention_norm = Norm();
    layer->qkv = LayerMatrix(from.qkv, widths_.qkv(), hidden);
    layer->qkv_bias = VectorIf(config_.has_qkv_bias, widths_.qkv());
    layer->q_norm = VectorIf(config_.has_qk_norms, widths_.head);
    layer->k_norm = VectorIf(config_.has_qk_norms, widths_.head);
    layer->output = LayerMatrix(std::span(&from.output, 1), hidden, widths_.q);
    layer->output_bias = VectorIf(config_.has_output_bias, hidden);
    layer->post_attention_norm = VectorIf(config_.has_post_norms, hidden);
    layer->mlp_norm = Norm();
    const int num_parts = config_.has_gate ? 2 : 1;
    layer->gate_up =
        LayerMatrix(from.gate_up, num_parts * intermediate, hidden);
    layer->gate_up_bias =
        VectorIf(config_.has_mlp_bias, layer->gate_up.num_rows);
    layer->down = LayerMatrix(std::span(&from.down, 1), hidden, intermediate);
    layer->down_bias = VectorIf(config_.has_mlp_bias, hidden);
    layer->post_mlp_norm = VectorIf(config_.has_post_norms, hidden);
  }

  void PlaceCross(const TransformerLayerTensors* given,
                  CudaTransformerLayer* layer) {
    static const TransformerLayerTensors kNone;
    const TransformerLayerTensors& from = given == nullptr ? kNone : *given;
    const int hidden = widths_.hidden;
    layer->cross_norm = Norm();
    layer->cross_q =
        LayerMatrix(std::span(&from.cross_q, 1), widths_.q, hidden);
    layer->cross_q_bias = VectorIf(config_.has_qkv_bias, widths_.q);
    layer->cross_kv = LayerMatrix(from.cross_kv, 2 * widths_.kv, hidden);
    layer->cross_kv_bias = VectorIf(config_.has_qkv_bias, 2 * widths_.kv);
    layer->cross_output =
        LayerMatrix(std::span(&from.cross_output, 1), hidden, widths_.q);
    layer->cross_output_bias = VectorIf(config_.has_output_bias, hidden);
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
        uploader_(uploader) {}

  absl::Status Run(const TransformerTensors& from,
                   const CudaTransformerWeights& to) {
    RETURN_IF_ERROR(
        uploader_.Upload("embed_tokens", from.embedding, to.embedding));
    if (!config_.tie_word_embeddings) {
      RETURN_IF_ERROR(uploader_.Upload("lm_head", from.head, to.head));
    }
    if (config_.has_logits_bias && from.logits_bias.data.empty()) {
      const std::vector<float> zeros(config_.vocab_size);
      RETURN_IF_ERROR(uploader_.UploadFloats(zeros, to.logits_bias));
    } else if (config_.has_logits_bias) {
      TransformerTensor bias = from.logits_bias;
      bias.num_rows = config_.vocab_size;  // it is stored as one row
      RETURN_IF_ERROR(UploadVector(bias, to.logits_bias));
    }
    RETURN_IF_ERROR(UploadStack(from, /*sees_all=*/false, to));
    RETURN_IF_ERROR(ScaleHead(from, to));
    if (!config_.encoder) return absl::OkStatus();
    for (int i = 0; i < config_.num_layers; ++i) {
      RETURN_IF_ERROR(Annotate(UploadCross(from.layers[i], to.layers[i]),
                               Concat("layer ", i)));
    }
    return Annotate(UploadStack(from.encoder, /*sees_all=*/true, to.encoder),
                    "encoder");
  }

 private:
  absl::Status UploadStack(const TransformerStackTensors& from, bool sees_all,
                           const CudaTransformerStack& to) {
    if (config_.positions == PositionKind::kLearned) {
      RETURN_IF_ERROR(uploader_.Upload(
          "positions", UsedPositions(from, to.positions.num_rows),
          to.positions));
    }
    if (to.distance_biases != nullptr) {
      TransformerTensor buckets = from.distance_biases;
      buckets.num_rows *= config_.num_heads;  // all numbers
      RETURN_IF_ERROR(uploader_.UploadFloats(
          BiasesByDistance(WidenedNumbers(std::span(&buckets, 1)),
                           config_.num_heads, config_.max_distance, sees_all),
          to.distance_biases));
    }
    RETURN_IF_ERROR(UploadNorm(from.embedding_norm, from.embedding_norm_bias,
                               to.embedding_norm));
    RETURN_IF_ERROR(
        UploadNorm(from.final_norm, from.final_norm_bias, to.final_norm));
    for (size_t i = 0; i < to.layers.size(); ++i) {
      RETURN_IF_ERROR(Annotate(UploadLayer(from.layers[i], to.layers[i]),
                               Concat("layer ", i)));
    }
    return absl::OkStatus();
  }

  // What the head reads is scaled by the norm before it. REQUIRES: it is no
  // LayerNorm.
  absl::Status ScaleHead(const TransformerTensors& from,
                         const CudaTransformerWeights& to) {
    if (!config_.scales_head) return absl::OkStatus();
    std::vector<float> norm = NormNumbers(from.final_norm);
    for (float& weight : norm) {
      weight /= std::sqrt(static_cast<float>(config_.hidden_size));
    }
    return uploader_.UploadFloats(norm, to.final_norm.weight);
  }

  // `num_rows` from that of position 0 on: an encoder may read fewer tokens
  // than it has positions.
  TransformerTensor UsedPositions(const TransformerStackTensors& from,
                                  int64_t num_rows) const {
    TransformerTensor used = from.positions;
    const size_t row_bytes = used.data.size() / used.num_rows;
    used.data = used.data.subspan(row_bytes * config_.position_offset,
                                  row_bytes * num_rows);
    used.num_rows = num_rows;
    return used;
  }

  absl::Status UploadLayer(const TransformerLayerTensors& from,
                           const CudaTransformerLayer& to) {
    RETURN_IF_ERROR(UploadNorm(from.attention_norm, from.attention_norm_bias,
                               to.attention_norm));
    RETURN_IF_ERROR(UploadHeads(from, to));
    RETURN_IF_ERROR(UploadOutput(from.output, to.output));
    RETURN_IF_ERROR(UploadVector(from.output_bias, to.output_bias));
    RETURN_IF_ERROR(UploadNorm(from.mlp_norm, from.mlp_norm_bias, to.mlp_norm));
    RETURN_IF_ERROR(UploadGateUp(from, to));
    RETURN_IF_ERROR(UploadMatrix("down_proj", from.down, to.down));
    RETURN_IF_ERROR(UploadVector(from.down_bias, to.down_bias));
    RETURN_IF_ERROR(
        UploadNormWeight(from.post_attention_norm, to.post_attention_norm));
    return UploadNormWeight(from.post_mlp_norm, to.post_mlp_norm);
  }

  absl::Status UploadCross(const TransformerLayerTensors& from,
                           const CudaTransformerLayer& to) {
    const std::vector<int> order = HeadRowOrder(config_, widths_.head);
    const std::span<const int> rows(order);
    const auto q = rows.first(widths_.q);
    RETURN_IF_ERROR(
        UploadNorm(from.cross_norm, from.cross_norm_bias, to.cross_norm));
    RETURN_IF_ERROR(
        UploadMatrix("cross q_proj", from.cross_q, to.cross_q, {.sources = q}));
    for (int part = 0; part < 2; ++part) {
      const int first = part * widths_.kv;
      RETURN_IF_ERROR(UploadMatrix(
          part == 0 ? "cross k_proj" : "cross v_proj", from.cross_kv[part],
          to.cross_kv,
          {.first_row = first,
           .sources = rows.subspan(widths_.q + first, widths_.kv),
           .first_source = config_.q_size() + part * config_.kv_size()}));
    }
    RETURN_IF_ERROR(UploadOutput(from.cross_output, to.cross_output));
    RETURN_IF_ERROR(UploadVector(from.cross_output_bias, to.cross_output_bias));
    if (!config_.has_qkv_bias) return absl::OkStatus();
    // Those of q, k and v together, as the order counts rows.
    std::vector<float> bias = WidenedNumbers(std::span(&from.cross_q_bias, 1));
    const std::vector<float> kv_bias = WidenedNumbers(from.cross_kv_bias);
    bias.insert(bias.end(), kv_bias.begin(), kv_bias.end());
    RETURN_IF_ERROR(UploadOrdered(bias, q, to.cross_q_bias));
    return UploadOrdered(bias, rows.subspan(widths_.q), to.cross_kv_bias);
  }

  absl::Status UploadOutput(const TransformerTensor& from,
                            const CudaMatrix& to) {
    return UploadMatrix("o_proj", from, to,
                        {.from_run = config_.head_dim, .to_run = widths_.head});
  }

  // Of a layer.
  absl::Status UploadMatrix(std::string_view name,
                            const TransformerTensor& from, const CudaMatrix& to,
                            CudaTensorPlace place = {}) {
    place.quantises = quantises_;
    return uploader_.Upload(name, from, to, place);
  }

  // q, k and v, and what is done to them.
  absl::Status UploadHeads(const TransformerLayerTensors& from,
                           const CudaTransformerLayer& to) {
    constexpr const char* kQkvNames[] = {"q_proj", "k_proj", "v_proj"};
    const std::vector<int> order = HeadRowOrder(config_, widths_.head);
    int row = 0;
    int source = 0;
    for (size_t i = 0; i < from.qkv.size(); ++i) {
      const int num_rows =
          from.qkv[i].num_rows / config_.head_dim * widths_.head;
      RETURN_IF_ERROR(UploadMatrix(
          from.qkv.size() == 1 ? "qkv_proj" : kQkvNames[i], from.qkv[i], to.qkv,
          {.first_row = row,
           .sources = std::span(order).subspan(row, num_rows),
           .first_source = source}));
      row += num_rows;
      source += from.qkv[i].num_rows;
    }
    if (config_.has_qkv_bias) {
      RETURN_IF_ERROR(
          UploadOrdered(WidenedNumbers(from.qkv_bias), order, to.qkv_bias));
    }
    if (!config_.has_qk_norms) return absl::OkStatus();
    const std::vector<int> of_head = QkRowOrder(config_, widths_.head);
    RETURN_IF_ERROR(
        UploadOrdered(NormNumbers(from.q_norm), of_head, to.q_norm));
    return UploadOrdered(NormNumbers(from.k_norm), of_head, to.k_norm);
  }

  absl::Status UploadGateUp(const TransformerLayerTensors& from,
                            const CudaTransformerLayer& to) {
    const bool has_bias = config_.has_mlp_bias;
    const std::vector<float> bias = WidenedNumbers(from.gate_up_bias);
    if (!config_.has_gate) {
      RETURN_IF_ERROR(UploadMatrix("up_proj", from.gate_up[0], to.gate_up));
      return has_bias ? uploader_.UploadFloats(bias, to.gate_up_bias)
                      : absl::OkStatus();
    }
    constexpr int kPair = 2 * kUploadedBlockRows;
    RETURN_IF_ERROR(UploadMatrix("gate_proj", from.gate_up[0], to.gate_up,
                                 {.first_row = 0, .row_step = kPair}));
    RETURN_IF_ERROR(
        UploadMatrix("up_proj", from.gate_up[1], to.gate_up,
                     {.first_row = kUploadedBlockRows, .row_step = kPair}));
    if (!has_bias) return absl::OkStatus();
    std::vector<float> blocks(to.gate_up.num_rows);
    const int num_gates = static_cast<int>(bias.size() / 2);
    for (size_t i = 0; i < bias.size(); ++i) {
      const int row = static_cast<int>(i) % num_gates;
      const int first =
          static_cast<int>(i) < num_gates ? 0 : kUploadedBlockRows;
      blocks[first + row / kUploadedBlockRows * kPair +
             row % kUploadedBlockRows] = bias[i];
    }
    return uploader_.UploadFloats(blocks, to.gate_up_bias);
  }

  std::vector<float> NormNumbers(const TransformerTensor& norm) const {
    return WidenedNumbers(std::span(&norm, 1),
                          config_.norm_adds_one ? 1.0f : 0.0f);
  }
  absl::Status UploadNorm(const TransformerTensor& weight,
                          const TransformerTensor& bias,
                          const CudaNormWeights& to) {
    RETURN_IF_ERROR(UploadNormWeight(weight, to.weight));
    return UploadVector(bias, to.bias);
  }
  absl::Status UploadNormWeight(const TransformerTensor& weight, float* to) {
    if (to == nullptr) return absl::OkStatus();
    return uploader_.UploadFloats(NormNumbers(weight), to);
  }
  absl::Status UploadVector(const TransformerTensor& vector, float* to) {
    if (to == nullptr) return absl::OkStatus();
    return uploader_.UploadFloats(WidenedNumbers(std::span(&vector, 1)), to);
  }
  absl::Status UploadOrdered(const std::vector<float>& numbers,
                             std::span<const int> order, float* to) {
    std::vector<float> ordered;
    for (const int row : order) {
      ordered.push_back(row == kNoHeadRow ? 0 : numbers[row]);
    }
    return uploader_.UploadFloats(ordered, to);
  }

  const TransformerConfig& config_;
  const bool quantises_;  // layers' matrices
  const CudaTransformerWidths& widths_;
  CudaWeightUploader& uploader_;
};

int64_t SizeOf(const CudaMatrix& w) { return int64_t{w.num_rows} * w.num_cols; }

// function(matrix) of all matrices of all layers; some have no data.
template <typename Function>
void ForEachLayerMatrix(const CudaTransformerWeights& weights,
                        Function function) {
  for (const auto* layers : {&weights.layers, &weights.encoder.layers}) {
    for (const CudaTransformerLayer& layer : *layers) {
      for (const CudaMatrix* w :
           {&layer.qkv, &layer.output, &layer.cross_q, &layer.cross_kv,
            &layer.cross_output, &layer.gate_up, &layer.down}) {
        function(*w);
      }
    }
  }
}

}  // namespace

CudaTransformerWidths WidthsOf(const TransformerConfig& config) {
  const int head = CudaHeadWidth(config.head_dim);
  return {.hidden = RoundUp8(config.hidden_size),
          .intermediate = RoundUp8(
              std::max(config.intermediate_size,
                       config.encoder ? config.encoder->intermediate_size : 0)),
          .head = head,
          .q = config.num_heads * head,
          .kv = config.num_kv_heads * head};
}

int64_t MaxMatrixWeights(const CudaTransformerWeights& weights) {
  int64_t most = SizeOf(weights.head);
  ForEachLayerMatrix(
      weights, [&](const CudaMatrix& w) { most = std::max(most, SizeOf(w)); });
  return most;
}

int64_t MaxFp8Weights(const CudaTransformerWeights& weights) {
  int64_t most = 0;
  ForEachLayerMatrix(weights, [&](const CudaMatrix& w) {
    if (w.fp8_scales != nullptr) most = std::max(most, SizeOf(w));
  });
  return most;
}

absl::StatusOr<CudaTransformerWeights> AllocateCudaTransformerWeights(
    const TransformerConfig& config, const CudaWeightTypes& types,
    const TransformerTensors* tensors) {
  CudaTransformerWeights weights;
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
  config.tie_word_embeddings = tensors.head.num_rows == 0;
  ASSIGN_OR_RETURN(CudaTransformerWeights weights,
                   AllocateCudaTransformerWeights(config, types, &tensors));
  const CudaTransformerWidths& widths = weights.widths;
  ASSIGN_OR_RETURN(CudaWeightUploader uploader,
                   CudaWeightUploader::Create(std::max(
                       {widths.hidden, widths.intermediate, widths.q})));
  RETURN_IF_ERROR(Annotate(ModelUploader(config, types.format, widths, uploader)
                               .Run(tensors, weights),
                           checkpoint.path()));
  return weights;
}

}  // namespace espalier
