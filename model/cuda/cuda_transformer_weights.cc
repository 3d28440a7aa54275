#include "model/cuda/cuda_transformer_weights.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "model/cuda/cuda_transformer_memory.h"
#include "model/cuda/cuda_weight_uploader.h"
#include "model/cuda_limits.h"
#include "model/rotary_order.h"
#include "model/transformer_tensors.h"

namespace espalier {
namespace {

constexpr float kRandomDeviation = 0.02f;

int RoundUp8(int size) { return (size + 7) / 8 * 8; }

// Fills in all pointers and shapes of weights, in the order in which the pass
// reads them.
class WeightPlacer {
 public:
  WeightPlacer(const TransformerConfig& config, DType dtype, std::byte* base)
      : config_(config),
        widths_(WidthsOf(config)),
        dtype_(dtype),
        arena_(base) {}

  // Returns the bytes that they take.
  size_t Run(CudaTransformerWeights* weights) {
    weights->widths = widths_;
    weights->embedding = Matrix(config_.vocab_size, widths_.hidden);
    if (config_.positions == PositionKind::kLearned) {
      weights->positions = Matrix(config_.max_context, widths_.hidden);
    }
    weights->head = config_.tie_word_embeddings
                        ? weights->embedding
                        : Matrix(config_.vocab_size, widths_.hidden);
    weights->final_norm = Norm();
    weights->layers.resize(config_.num_layers);
    for (CudaTransformerLayer& layer : weights->layers) PlaceLayer(&layer);
    return arena_.size();
  }

 private:
  CudaMatrix Matrix(int num_rows, int num_cols) {
    const size_t bytes = size_t(num_rows) * num_cols * NumBytes(dtype_);
    return CudaMatrix{arena_.TakeBytes(bytes), dtype_, num_rows, num_cols};
  }
  float* VectorIf(bool is_there, int size) {
    return is_there ? arena_.Take<float>(size) : nullptr;
  }
  CudaNormWeights Norm() {
    CudaNormWeights norm = {arena_.Take<float>(widths_.hidden)};
    norm.bias = VectorIf(config_.norm == NormKind::kLayer, widths_.hidden);
    return norm;
  }

  void PlaceLayer(CudaTransformerLayer* layer) {
    const int hidden = widths_.hidden;
    layer->attention_norm = Norm();
    layer->qkv = Matrix(widths_.qkv, hidden);
    layer->qkv_bias = VectorIf(config_.has_qkv_bias, widths_.qkv);
    layer->q_norm = VectorIf(config_.has_qk_norms, widths_.head);
    layer->k_norm = VectorIf(config_.has_qk_norms, widths_.head);
    layer->output = Matrix(hidden, widths_.q);
    layer->output_bias = VectorIf(config_.has_output_bias, hidden);
    layer->post_attention_norm = VectorIf(config_.has_post_norms, hidden);
    layer->mlp_norm = Norm();
    const int num_parts = config_.has_gate ? 2 : 1;
    layer->gate_up = Matrix(num_parts * widths_.intermediate, hidden);
    layer->gate_up_bias =
        VectorIf(config_.has_mlp_bias, layer->gate_up.num_rows);
    layer->down = Matrix(hidden, widths_.intermediate);
    layer->down_bias = VectorIf(config_.has_mlp_bias, hidden);
    layer->post_mlp_norm = VectorIf(config_.has_post_norms, hidden);
  }

  const TransformerConfig& config_;
  const CudaTransformerWidths widths_;
  const DType dtype_;
  DeviceArena arena_;
};

// What is past a tensor's rows and columns stays zero.
absl::StatusOr<CudaTransformerWeights> Allocate(const TransformerConfig& config,
                                                DType dtype) {
  CudaTransformerWeights weights;
  const size_t bytes = WeightPlacer(config, dtype, nullptr).Run(&weights);
  ASSIGN_OR_RETURN(weights.memory, ZeroedDeviceMemory("weights", bytes));
  WeightPlacer(config, dtype, weights.memory.data()).Run(&weights);
  return weights;
}

// Uploads the tensors of a model to where they were placed.
class ModelUploader {
 public:
  ModelUploader(const TransformerConfig& config,
                const CudaTransformerWidths& widths,
                CudaWeightUploader& uploader)
      : config_(config), widths_(widths), uploader_(uploader) {}

  absl::Status Run(const TransformerTensors& from,
                   const CudaTransformerWeights& to) {
    RETURN_IF_ERROR(
        uploader_.Upload("embed_tokens", from.embedding, to.embedding));
    if (config_.positions == PositionKind::kLearned) {
      RETURN_IF_ERROR(
          uploader_.Upload("positions", from.positions, to.positions));
    }
    if (!config_.tie_word_embeddings) {
      RETURN_IF_ERROR(uploader_.Upload("lm_head", from.head, to.head));
    }
    RETURN_IF_ERROR(
        UploadNorm(from.final_norm, from.final_norm_bias, to.final_norm));
    for (int i = 0; i < config_.num_layers; ++i) {
      RETURN_IF_ERROR(Annotate(UploadLayer(from.layers[i], to.layers[i]),
                               Concat("layer ", i)));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status UploadLayer(const TransformerLayerTensors& from,
                           const CudaTransformerLayer& to) {
    RETURN_IF_ERROR(UploadNorm(from.attention_norm, from.attention_norm_bias,
                               to.attention_norm));
    RETURN_IF_ERROR(UploadHeads(from, to));
    RETURN_IF_ERROR(uploader_.Upload(
        "o_proj", from.output, to.output,
        {.from_run = config_.head_dim, .to_run = widths_.head}));
    RETURN_IF_ERROR(UploadVector(from.output_bias, to.output_bias));
    RETURN_IF_ERROR(UploadNorm(from.mlp_norm, from.mlp_norm_bias, to.mlp_norm));
    RETURN_IF_ERROR(UploadGateUp(from, to));
    RETURN_IF_ERROR(uploader_.Upload("down_proj", from.down, to.down));
    RETURN_IF_ERROR(UploadVector(from.down_bias, to.down_bias));
    RETURN_IF_ERROR(
        UploadNormWeight(from.post_attention_norm, to.post_attention_norm));
    return UploadNormWeight(from.post_mlp_norm, to.post_mlp_norm);
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
      RETURN_IF_ERROR(uploader_.Upload(
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
      RETURN_IF_ERROR(uploader_.Upload("up_proj", from.gate_up[0], to.gate_up));
      return has_bias ? uploader_.UploadFloats(bias, to.gate_up_bias)
                      : absl::OkStatus();
    }
    constexpr int kPair = 2 * kUploadedBlockRows;
    RETURN_IF_ERROR(uploader_.Upload("gate_proj", from.gate_up[0], to.gate_up,
                                     {.first_row = 0, .row_step = kPair}));
    RETURN_IF_ERROR(
        uploader_.Upload("up_proj", from.gate_up[1], to.gate_up,
                         {.first_row = kUploadedBlockRows, .row_step = kPair}));
    if (!has_bias) return absl::OkStatus();
    std::vector<float> blocks(to.gate_up.num_rows);
    for (size_t i = 0; i < bias.size(); ++i) {
      const int row = static_cast<int>(i) % config_.intermediate_size;
      const int first = static_cast<int>(i) < config_.intermediate_size
                            ? 0
                            : kUploadedBlockRows;
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
  const CudaTransformerWidths& widths_;
  CudaWeightUploader& uploader_;
};

// Fills matrices and norms, each with numbers of its own.
class RandomFiller {
 public:
  RandomFiller(const TransformerConfig& config,
               const CudaTransformerWidths& widths)
      : config_(config), widths_(widths) {}

  absl::Status Run(const CudaTransformerWeights& weights) {
    const int hidden = config_.hidden_size;
    RETURN_IF_ERROR(Fill(weights.embedding, config_.vocab_size, hidden));
    if (weights.positions.data != nullptr) {
      RETURN_IF_ERROR(Fill(weights.positions, config_.max_context, hidden));
    }
    if (!config_.tie_word_embeddings) {
      RETURN_IF_ERROR(Fill(weights.head, config_.vocab_size, hidden));
    }
    RETURN_IF_ERROR(FillNorm(weights.final_norm.weight, hidden));
    for (const CudaTransformerLayer& layer : weights.layers) {
      RETURN_IF_ERROR(FillLayer(layer));
    }
    return absl::OkStatus();
  }

 private:
  // Rows past the real ones get numbers too: those of gate_up meet columns of
  // `down` that are zero, and heads are as wide as they lie in memory.
  absl::Status FillLayer(const CudaTransformerLayer& layer) {
    const int hidden = config_.hidden_size;
    RETURN_IF_ERROR(FillNorm(layer.attention_norm.weight, hidden));
    RETURN_IF_ERROR(Fill(layer.qkv, layer.qkv.num_rows, hidden));
    RETURN_IF_ERROR(Fill(layer.output, hidden, widths_.q));
    RETURN_IF_ERROR(FillNorm(layer.q_norm, config_.head_dim));
    RETURN_IF_ERROR(FillNorm(layer.k_norm, config_.head_dim));
    RETURN_IF_ERROR(FillNorm(layer.post_attention_norm, hidden));
    RETURN_IF_ERROR(FillNorm(layer.mlp_norm.weight, hidden));
    RETURN_IF_ERROR(Fill(layer.gate_up, layer.gate_up.num_rows, hidden));
    RETURN_IF_ERROR(Fill(layer.down, hidden, config_.intermediate_size));
    return FillNorm(layer.post_mlp_norm, hidden);
  }

  absl::Status Fill(const CudaMatrix& w, int num_rows, int num_cols) {
    return CudaFillNormal(const_cast<void*>(w.data), w.dtype, num_rows,
                          num_cols, w.num_cols, kRandomDeviation, ++seed_,
                          /*stream=*/nullptr);
  }
  absl::Status FillNorm(float* norm, int size) {
    if (norm == nullptr) return absl::OkStatus();
    const std::vector<float> ones(size, 1.0f);
    RETURN_IF_CUDA_ERROR(cudaMemcpy(norm, ones.data(), size * sizeof(float),
                                    cudaMemcpyHostToDevice));
    return absl::OkStatus();
  }

  const TransformerConfig& config_;
  const CudaTransformerWidths& widths_;
  uint64_t seed_ = 0;
};

}  // namespace

CudaTransformerWidths WidthsOf(const TransformerConfig& config) {
  const int head = CudaHeadWidth(config.head_dim);
  return {.hidden = RoundUp8(config.hidden_size),
          .intermediate = RoundUp8(config.intermediate_size),
          .head = head,
          .q = config.num_heads * head,
          .qkv = (config.num_heads + 2 * config.num_kv_heads) * head};
}

absl::StatusOr<CudaTransformerWeights> LoadCudaTransformerWeights(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    DType dtype) {
  ASSIGN_OR_RETURN(const TransformerTensors tensors,
                   FindTransformerTensors(checkpoint, config));
  ASSIGN_OR_RETURN(CudaTransformerWeights weights, Allocate(config, dtype));
  const CudaTransformerWidths& widths = weights.widths;
  ASSIGN_OR_RETURN(CudaWeightUploader uploader,
                   CudaWeightUploader::Create(std::max(
                       {widths.hidden, widths.intermediate, widths.q})));
  RETURN_IF_ERROR(
      Annotate(ModelUploader(config, widths, uploader).Run(tensors, weights),
               checkpoint.path()));
  return weights;
}

absl::StatusOr<CudaTransformerWeights> RandomCudaTransformerWeights(
    const TransformerConfig& config, DType dtype) {
  ASSIGN_OR_RETURN(CudaTransformerWeights weights, Allocate(config, dtype));
  RETURN_IF_ERROR(RandomFiller(config, weights.widths).Run(weights));
  RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return weights;
}

}  // namespace espalier
