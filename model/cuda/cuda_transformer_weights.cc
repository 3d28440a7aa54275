#include "model/cuda/cuda_transformer_weights.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/load_as_float.h"
#include "base/status.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "model/cuda/cuda_transformer_memory.h"
#include "model/rotary_order.h"
#include "model/transformer_tensors.h"

namespace espalier {
namespace {

// gate_up's blocks; everything is uploaded in blocks of as many rows.
constexpr int kBlockRows = 8;
// Large enough for the bus, small enough to pin.
constexpr size_t kStagingBytes = size_t{16} << 20;
constexpr float kRandomDeviation = 0.02f;

int RoundUp8(int size) { return (size + 7) / 8 * 8; }

// Fills in all pointers and shapes of `weights`; returns the bytes it takes.
size_t Place(const TransformerConfig& config, DType dtype, std::byte* base,
             CudaTransformerWeights* weights) {
  DeviceArena placer(base);
  const auto matrix = [&](int num_rows, int num_cols) {
    const size_t bytes = size_t(num_rows) * num_cols * NumBytes(dtype);
    return CudaMatrix{placer.TakeBytes(bytes), dtype, num_rows, num_cols};
  };
  const int hidden = RoundUp8(config.hidden_size);
  const int intermediate = RoundUp8(config.intermediate_size);
  weights->hidden_width = hidden;
  weights->intermediate_width = intermediate;
  weights->embedding = matrix(config.vocab_size, hidden);
  weights->head = config.tie_word_embeddings
                      ? weights->embedding
                      : matrix(config.vocab_size, hidden);
  weights->final_norm = placer.Take<float>(hidden);
  weights->layers.resize(config.num_layers);
  for (CudaTransformerLayer& layer : weights->layers) {
    layer.attention_norm = placer.Take<float>(hidden);
    const int qkv_size = config.q_size() + 2 * config.kv_size();
    layer.qkv = matrix(qkv_size, hidden);
    if (config.has_qkv_bias) layer.qkv_bias = placer.Take<float>(qkv_size);
    if (config.has_qk_norms) {
      layer.q_norm = placer.Take<float>(config.head_dim);
      layer.k_norm = placer.Take<float>(config.head_dim);
    }
    layer.output = matrix(hidden, config.q_size());
    layer.mlp_norm = placer.Take<float>(hidden);
    layer.gate_up = matrix(2 * intermediate, hidden);
    layer.down = matrix(hidden, intermediate);
  }
  return placer.size();
}

// What is past a tensor's rows and columns stays zero.
absl::StatusOr<CudaTransformerWeights> Allocate(const TransformerConfig& config,
                                                DType dtype) {
  CudaTransformerWeights weights;
  const size_t bytes = Place(config, dtype, nullptr, &weights);
  ASSIGN_OR_RETURN(weights.memory, ZeroedDeviceMemory("weights", bytes));
  Place(config, dtype, weights.memory.data(), &weights);
  return weights;
}

// Rows of a matrix in device memory: block b of eight rows begins at row
// first_row + b * row_step.
struct RowPlace {
  int first_row = 0;
  int row_step = kBlockRows;
  // Rows of the matrix that those from first_row on come from; empty: as they
  // are.
  std::span<const int> order = {};
};

// Converts and copies tensors through one pinned buffer.
class Uploader {
 public:
  // `widest_row` numbers are the most that a row of a matrix has.
  static absl::StatusOr<Uploader> Create(int widest_row) {
    Uploader uploader;
    const size_t block_bytes = kBlockRows * sizeof(float) * widest_row;
    ASSIGN_OR_RETURN(
        uploader.staging_,
        PinnedBuffer<std::byte>::Create(std::max(kStagingBytes, block_bytes)));
    return uploader;
  }

  absl::Status Upload(std::string_view name, const TransformerTensor& tensor,
                      const CudaMatrix& to, RowPlace place = {}) {
    const size_t row_bytes = size_t(to.num_cols) * NumBytes(to.dtype);
    const int most_rows = static_cast<int>(
        staging_.size() / (kBlockRows * row_bytes) * kBlockRows);
    for (int row = 0; row < tensor.num_rows; row += most_rows) {
      const int num_rows = std::min(tensor.num_rows - row, most_rows);
      for (int i = 0; i < num_rows; ++i) {
        const int from = place.order.empty()
                             ? row + i
                             : place.order[row + i] - place.first_row;
        RETURN_IF_ERROR(Annotate(
            ConvertRow(tensor, from, to, &staging_[i * row_bytes]), name));
      }
      RETURN_IF_ERROR(Copy(row, num_rows, to, place));
    }
    return absl::OkStatus();
  }

  // As float32, each number plus `addend`.
  absl::Status UploadVector(const TransformerTensor& tensor, float* to,
                            float addend = 0) {
    for (int i = 0; i < tensor.num_rows; ++i) {
      const float value =
          LoadAsFloat(&tensor.data[size_t(i) * NumBytes(tensor.dtype)],
                      tensor.dtype) +
          addend;
      std::memcpy(&staging_[i * sizeof(float)], &value, sizeof(value));
    }
    RETURN_IF_CUDA_ERROR(cudaMemcpy(to, staging_.data(),
                                    tensor.num_rows * sizeof(float),
                                    cudaMemcpyHostToDevice));
    return absl::OkStatus();
  }

 private:
  // Row `row` of the tensor, as a row of `matrix` with zeros past its end.
  static absl::Status ConvertRow(const TransformerTensor& tensor, int row,
                                 const CudaMatrix& matrix, std::byte* to) {
    const size_t from_bytes = NumBytes(tensor.dtype);
    const size_t to_bytes = NumBytes(matrix.dtype);
    const size_t num_cols = tensor.data.size() / from_bytes / tensor.num_rows;
    const std::byte* from = &tensor.data[row * num_cols * from_bytes];
    std::memset(to + num_cols * to_bytes, 0,
                (matrix.num_cols - num_cols) * to_bytes);
    if (tensor.dtype == matrix.dtype) {
      std::memcpy(to, from, num_cols * from_bytes);
      return absl::OkStatus();
    }
    for (size_t i = 0; i < num_cols; ++i) {
      const float value = LoadAsFloat(from + i * from_bytes, tensor.dtype);
      if (!Store(value, matrix.dtype, to + i * to_bytes)) {
        return InvalidArgument("float16 cannot hold ", value, " of row ", row);
      }
    }
    return absl::OkStatus();
  }

  // False if a finite value became infinite in float16.
  static bool Store(float value, DType dtype, std::byte* to) {
    if (dtype == DType::kFloat32) {
      std::memcpy(to, &value, sizeof(value));
    } else if (dtype == DType::kBFloat16) {
      const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
      std::memcpy(to, &rounded, sizeof(rounded));
    } else {
      const __half rounded = __float2half_rn(value);
      std::memcpy(to, &rounded, sizeof(rounded));
      return std::isfinite(__half2float(rounded)) || !std::isfinite(value);
    }
    return true;
  }

  // What is staged, as rows [row, row + num_rows) of a tensor.
  // REQUIRES: row % kBlockRows == 0.
  absl::Status Copy(int row, int num_rows, const CudaMatrix& matrix,
                    RowPlace place) {
    const size_t row_bytes = size_t(matrix.num_cols) * NumBytes(matrix.dtype);
    const size_t block_bytes = kBlockRows * row_bytes;
    const size_t step_bytes = place.row_step * row_bytes;
    const int num_blocks = num_rows / kBlockRows;
    const size_t rest_bytes = num_rows % kBlockRows * row_bytes;
    // Only this file writes to weights, and only here.
    std::byte* to = static_cast<std::byte*>(const_cast<void*>(matrix.data)) +
                    place.first_row * row_bytes + row / kBlockRows * step_bytes;
    RETURN_IF_CUDA_ERROR(cudaMemcpy2D(to, step_bytes, staging_.data(),
                                      block_bytes, block_bytes, num_blocks,
                                      cudaMemcpyHostToDevice));
    RETURN_IF_CUDA_ERROR(cudaMemcpy(to + num_blocks * step_bytes,
                                    &staging_[num_blocks * block_bytes],
                                    rest_bytes, cudaMemcpyHostToDevice));
    return absl::OkStatus();
  }

  PinnedBuffer<std::byte> staging_;
};

// q, k and v, and what is done to them.
absl::Status UploadHeads(const TransformerLayerTensors& from,
                         const TransformerConfig& config,
                         const CudaTransformerLayer& to, Uploader& uploader) {
  constexpr const char* kQkvNames[] = {"q_proj", "k_proj", "v_proj"};
  const std::vector<int> order = RotaryRowOrder(config);
  int row = 0;
  for (size_t i = 0; i < from.qkv.size(); ++i) {
    RETURN_IF_ERROR(uploader.Upload(
        from.qkv.size() == 1 ? "qkv_proj" : kQkvNames[i], from.qkv[i], to.qkv,
        {.first_row = row, .order = std::span(order).subspan(row)}));
    if (config.has_qkv_bias) {
      RETURN_IF_ERROR(
          uploader.UploadVector(from.qkv_bias[i], to.qkv_bias + row));
    }
    row += from.qkv[i].num_rows;
  }
  if (!config.has_qk_norms) return absl::OkStatus();
  const float one = config.norm_adds_one ? 1.0f : 0.0f;
  RETURN_IF_ERROR(uploader.UploadVector(from.q_norm, to.q_norm, one));
  return uploader.UploadVector(from.k_norm, to.k_norm, one);
}

absl::Status UploadLayer(const TransformerLayerTensors& from,
                         const TransformerConfig& config,
                         const CudaTransformerLayer& to, Uploader& uploader) {
  const int pair = 2 * kBlockRows;
  const float one = config.norm_adds_one ? 1.0f : 0.0f;
  RETURN_IF_ERROR(
      uploader.UploadVector(from.attention_norm, to.attention_norm, one));
  RETURN_IF_ERROR(UploadHeads(from, config, to, uploader));
  RETURN_IF_ERROR(uploader.Upload("o_proj", from.output, to.output));
  RETURN_IF_ERROR(uploader.UploadVector(from.mlp_norm, to.mlp_norm, one));
  RETURN_IF_ERROR(uploader.Upload("gate_proj", from.gate_up[0], to.gate_up,
                                  {.first_row = 0, .row_step = pair}));
  RETURN_IF_ERROR(uploader.Upload("up_proj", from.gate_up[1], to.gate_up,
                                  {.first_row = kBlockRows, .row_step = pair}));
  return uploader.Upload("down_proj", from.down, to.down);
}

absl::Status UploadAll(const TransformerTensors& from,
                       const TransformerConfig& config,
                       const CudaTransformerWeights& to, Uploader& uploader) {
  RETURN_IF_ERROR(
      uploader.Upload("embed_tokens", from.embedding, to.embedding));
  if (!config.tie_word_embeddings) {
    RETURN_IF_ERROR(uploader.Upload("lm_head", from.head, to.head));
  }
  RETURN_IF_ERROR(uploader.UploadVector(from.final_norm, to.final_norm,
                                        config.norm_adds_one ? 1.0f : 0.0f));
  for (int i = 0; i < config.num_layers; ++i) {
    RETURN_IF_ERROR(
        Annotate(UploadLayer(from.layers[i], config, to.layers[i], uploader),
                 Concat("layer ", i)));
  }
  return absl::OkStatus();
}

// Fills matrices and norms, each with numbers of its own.
class RandomFiller {
 public:
  absl::Status Fill(const CudaMatrix& w, int num_rows, int num_cols) {
    return CudaFillNormal(const_cast<void*>(w.data), w.dtype, num_rows,
                          num_cols, w.num_cols, kRandomDeviation, ++seed_,
                          /*stream=*/nullptr);
  }
  absl::Status FillNorm(float* norm, int size) {
    const std::vector<float> ones(size, 1.0f);
    RETURN_IF_CUDA_ERROR(cudaMemcpy(norm, ones.data(), size * sizeof(float),
                                    cudaMemcpyHostToDevice));
    return absl::OkStatus();
  }

 private:
  uint64_t seed_ = 0;
};

// Rows of gate_up past the real ones get numbers too; the columns of `down`
// that would read them are zero.
absl::Status FillLayer(const TransformerConfig& config,
                       const CudaTransformerLayer& layer,
                       RandomFiller& filler) {
  const int hidden = config.hidden_size;
  RETURN_IF_ERROR(filler.FillNorm(layer.attention_norm, hidden));
  RETURN_IF_ERROR(filler.Fill(layer.qkv, layer.qkv.num_rows, hidden));
  RETURN_IF_ERROR(filler.Fill(layer.output, hidden, config.q_size()));
  if (config.has_qk_norms) {
    RETURN_IF_ERROR(filler.FillNorm(layer.q_norm, config.head_dim));
    RETURN_IF_ERROR(filler.FillNorm(layer.k_norm, config.head_dim));
  }
  RETURN_IF_ERROR(filler.FillNorm(layer.mlp_norm, hidden));
  RETURN_IF_ERROR(filler.Fill(layer.gate_up, layer.gate_up.num_rows, hidden));
  return filler.Fill(layer.down, hidden, config.intermediate_size);
}

}  // namespace

absl::StatusOr<CudaTransformerWeights> LoadCudaTransformerWeights(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    DType dtype) {
  ASSIGN_OR_RETURN(const TransformerTensors tensors,
                   FindTransformerTensors(checkpoint, config));
  ASSIGN_OR_RETURN(CudaTransformerWeights weights, Allocate(config, dtype));
  const int widest_row = std::max(
      {weights.hidden_width, weights.intermediate_width, config.q_size()});
  ASSIGN_OR_RETURN(Uploader uploader, Uploader::Create(widest_row));
  RETURN_IF_ERROR(Annotate(UploadAll(tensors, config, weights, uploader),
                           checkpoint.path()));
  return weights;
}

absl::StatusOr<CudaTransformerWeights> RandomCudaTransformerWeights(
    const TransformerConfig& config, DType dtype) {
  ASSIGN_OR_RETURN(CudaTransformerWeights weights, Allocate(config, dtype));
  RandomFiller filler;
  RETURN_IF_ERROR(
      filler.Fill(weights.embedding, config.vocab_size, config.hidden_size));
  if (!config.tie_word_embeddings) {
    RETURN_IF_ERROR(
        filler.Fill(weights.head, config.vocab_size, config.hidden_size));
  }
  RETURN_IF_ERROR(filler.FillNorm(weights.final_norm, config.hidden_size));
  for (const CudaTransformerLayer& layer : weights.layers) {
    RETURN_IF_ERROR(FillLayer(config, layer, filler));
  }
  RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return weights;
}

}  // namespace espalier
