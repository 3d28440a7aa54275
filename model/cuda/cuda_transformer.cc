#include "model/cuda/cuda_transformer.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/cuda_device_scope.h"
#include "base/status.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/elementwise/cuda_finish_heads.h"
#include "kernels/kv_cache/cuda_rotate_and_store.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/select/cuda_select.h"
#include "model/checkpoint.h"
#include "model/cuda/cuda_transformer_memory.h"
#include "model/cuda/cuda_transformer_weights.h"
#include "model/device_features.h"

namespace espalier {
namespace {

constexpr int kMaxPageSize = 4096;
constexpr int kMaxHeadDim = 256;  // CudaAttention's

// What the kernels take.
absl::Status CheckConfig(const TransformerConfig& config) {
  RETURN_IF_ERROR(CheckCudaFeatures(config));
  if (config.head_dim % 8 != 0 || config.head_dim > kMaxHeadDim) {
    return InvalidArgument("head_dim must be a multiple of 8 up to ",
                           kMaxHeadDim, " on a CUDA device, got ",
                           config.head_dim);
  }
  if (config.hidden_size > kMaxCudaNormWidth) {
    return InvalidArgument("hidden_size must be at most ", kMaxCudaNormWidth,
                           " on a CUDA device, got ", config.hidden_size);
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const CudaTransformerOptions& options) {
  if (options.page_size < 1 || options.page_size > kMaxPageSize) {
    return InvalidArgument("page_size must be in [1, ", kMaxPageSize, "], got ",
                           options.page_size);
  }
  for (const int bound :
       {options.max_tokens, options.max_logits, options.max_attention_items,
        options.max_attention_partials}) {
    if (bound < 1) {
      return InvalidArgument("bounds of a call must be at least 1, got ",
                             bound);
    }
  }
  return absl::OkStatus();
}

CudaCallBounds BoundsOf(const CudaTransformerOptions& options) {
  return {.max_tokens = options.max_tokens,
          .max_logits = options.max_logits,
          .max_attention_items = options.max_attention_items,
          .max_attention_partials = options.max_attention_partials};
}

ModelDescription Describe(const TransformerConfig& config,
                          const CudaKvCache& cache) {
  return {.vocab_size = config.vocab_size,
          .max_context = config.max_context,
          .eos_token_ids = config.eos_token_ids,
          .default_max_new_tokens = config.default_max_new_tokens,
          .num_pages = cache.num_pages - 1,
          .page_size = cache.page_size,
          .has_shareable_pages = true};
}

class LoadedCudaTransformer : public CudaTransformer {
 public:
  // Everything but the weights.
  static absl::StatusOr<std::unique_ptr<CudaTransformer>> Create(
      const TransformerConfig& config, const CudaTransformerOptions& options,
      const CudaDevice& device, CudaTransformerWeights weights);

  ~LoadedCudaTransformer() override {
    freeing_.emplace(CudaDeviceScope::EnterIfPossible(device_.ordinal));
  }

  const ModelDescription& description() const override { return description_; }
  const TransformerConfig& config() const override { return config_; }
  const CudaDevice& device() const override { return device_; }
  const CudaCallBounds& bounds() const override { return bounds_; }
  const CudaKvCache& cache() const override { return kv_.cache; }
  CudaAttentionShape attention_shape() const override {
    return {.num_heads = config_.num_heads,
            .num_kv_heads = config_.num_kv_heads,
            .head_dim = config_.head_dim,
            .page_size = options_.page_size,
            .dtype = options_.dtype};
  }
  PageId null_page() const override { return {kv_.cache.num_pages - 1}; }
  CudaMemoryParts memory() const override;

  absl::Status Enqueue(const CudaBatch& batch, float* logits,
                       cudaStream_t stream) override;

 private:
  // Activations between two parts of a layer: the residual stream, and what
  // the next part reads.
  struct TokenRows {
    int num_rows = 0;
    float* x = nullptr;
    void* attended = nullptr;
  };

  LoadedCudaTransformer(const TransformerConfig& config,
                        const CudaTransformerOptions& options,
                        const CudaDevice& device,
                        CudaTransformerWeights weights)
      : config_(config),
        options_(options),
        bounds_(BoundsOf(options)),
        device_(device),
        weights_(std::move(weights)) {}

  absl::Status CheckBounds(const CudaBatch& batch) const;
  // attention_shape() with the layer's window, if that hides anything.
  CudaAttentionShape LayerShape(int layer_idx) const;
  CudaNorm Norm(const float* weight) const;
  absl::Status StoreProjections(const CudaTransformerLayer& layer,
                                int layer_idx, const CudaBatch& batch,
                                cudaStream_t stream);
  absl::Status Attend(int layer_idx, const CudaBatch& batch,
                      cudaStream_t stream);
  absl::StatusOr<TokenRows> KeepLogitsTokens(const CudaBatch& batch,
                                             cudaStream_t stream);
  absl::Status FinishLayer(const CudaTransformerLayer& layer,
                           const TokenRows& rows, const float* next_norm,
                           cudaStream_t stream);

  // First, so that it is left last: what is owned below is freed on its device.
  std::optional<CudaDeviceScope> freeing_;
  const TransformerConfig config_;
  const CudaTransformerOptions options_;
  const CudaCallBounds bounds_;
  const CudaDevice device_;
  const CudaTransformerWeights weights_;
  ModelDescription description_;
  CudaKvMemory kv_;
  CudaRotaryMemory rotary_;
  CudaTransformerScratch scratch_;
  std::unique_ptr<CudaMatMul> matmul_;
};

absl::StatusOr<std::unique_ptr<CudaTransformer>> LoadedCudaTransformer::Create(
    const TransformerConfig& config, const CudaTransformerOptions& options,
    const CudaDevice& device, CudaTransformerWeights weights) {
  std::unique_ptr<LoadedCudaTransformer> model(
      new LoadedCudaTransformer(config, options, device, std::move(weights)));
  RETURN_IF_ERROR(PrepareCudaAttention(model->attention_shape(), device));
  for (int i = 0; i < config.num_layers; ++i) {
    const CudaAttentionShape shape = model->LayerShape(i);
    if (shape.window == 0) continue;
    RETURN_IF_ERROR(PrepareCudaAttention(shape, device));
    break;
  }
  const int hidden_width = model->weights_.hidden_width;
  const int intermediate_width = model->weights_.intermediate_width;
  ASSIGN_OR_RETURN(model->scratch_,
                   AllocateCudaTransformerScratch(config, options, hidden_width,
                                                  intermediate_width,
                                                  model->attention_shape()));
  ASSIGN_OR_RETURN(model->matmul_,
                   CudaMatMul::Create(
                       device, std::max(options.max_tokens, options.max_logits),
                       2 * intermediate_width));
  ASSIGN_OR_RETURN(model->kv_, AllocateCudaKvCache(config, options));
  ASSIGN_OR_RETURN(model->rotary_, MakeCudaRotary(config, model->kv_.cache));
  model->description_ = Describe(config, model->kv_.cache);
  RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return model;
}

CudaMemoryParts LoadedCudaTransformer::memory() const {
  const auto bytes = [](const auto& buffer) {
    return static_cast<int64_t>(buffer.size_bytes());
  };
  return {{"weights", bytes(weights_.memory)},
          {"keys and values", bytes(kv_.memory)},
          {"activations", bytes(scratch_.memory)},
          {"positions", bytes(rotary_.cosines) + bytes(rotary_.sines)}};
}

absl::Status LoadedCudaTransformer::CheckBounds(const CudaBatch& batch) const {
  struct Bound {
    const char* name;
    int value;
    int limit;
  };
  const CudaAttentionInputs& attention = batch.attention;
  for (const Bound& bound :
       {Bound{"tokens", batch.num_tokens, bounds_.max_tokens},
        Bound{"rows of logits", batch.num_logits,
              std::min(bounds_.max_logits, batch.num_tokens)},
        Bound{"queries", attention.max_queries, bounds_.max_tokens},
        Bound{"items", attention.max_items, bounds_.max_attention_items},
        Bound{"partials", attention.max_partials,
              bounds_.max_attention_partials}}) {
    if (bound.value >= 0 && bound.value <= bound.limit) continue;
    return InvalidArgument("a call of ", bound.value, " ", bound.name,
                           ", the limit is ", bound.limit);
  }
  return absl::OkStatus();
}

CudaAttentionShape LoadedCudaTransformer::LayerShape(int layer_idx) const {
  CudaAttentionShape shape = attention_shape();
  const int window = config_.window(layer_idx);
  if (window < config_.max_context) shape.window = window;
  return shape;
}

CudaNorm LoadedCudaTransformer::Norm(const float* weight) const {
  return {.weight = weight,
          .size = config_.hidden_size,
          .width = weights_.hidden_width,
          .epsilon = static_cast<float>(config_.norm_eps)};
}

// Between the parts of a layer x is the residual stream, and normed what the
// next part reads.
absl::Status LoadedCudaTransformer::Enqueue(const CudaBatch& batch,
                                            float* logits,
                                            cudaStream_t stream) {
  RETURN_IF_ERROR(CheckBounds(batch));
  if (batch.num_tokens == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(device_.ordinal));
  const auto& layers = weights_.layers;
  RETURN_IF_ERROR(CudaEmbed(batch.tokens, batch.num_tokens, weights_.embedding,
                            Norm(layers[0].attention_norm), scratch_.x,
                            scratch_.normed, stream));
  TokenRows rows = {batch.num_tokens, scratch_.x, scratch_.attended};
  const int last = config_.num_layers - 1;
  for (int i = 0; i <= last; ++i) {
    RETURN_IF_ERROR(StoreProjections(layers[i], i, batch, stream));
    if (i == last && batch.num_logits == 0) return absl::OkStatus();
    RETURN_IF_ERROR(Attend(i, batch, stream));
    if (i == last) {
      ASSIGN_OR_RETURN(rows, KeepLogitsTokens(batch, stream));
    }
    RETURN_IF_ERROR(FinishLayer(
        layers[i], rows,
        i == last ? weights_.final_norm : layers[i + 1].attention_norm,
        stream));
  }
  return matmul_->Run(scratch_.normed, rows.num_rows, weights_.head,
                      CudaEpilogue::kStoreFloat, logits, stream);
}

// Leaves rotated q in qkv, and k and v in their pages.
absl::Status LoadedCudaTransformer::StoreProjections(
    const CudaTransformerLayer& layer, int layer_idx, const CudaBatch& batch,
    cudaStream_t stream) {
  RETURN_IF_ERROR(matmul_->Run(scratch_.normed, batch.num_tokens, layer.qkv,
                               CudaEpilogue::kStore, scratch_.qkv, stream));
  const CudaHeadShape shape = {.num_heads = config_.num_heads,
                               .num_kv_heads = config_.num_kv_heads,
                               .head_dim = config_.head_dim};
  const CudaHeadWeights heads = {
      .bias = layer.qkv_bias,
      .q_norm = layer.q_norm,
      .k_norm = layer.k_norm,
      .epsilon = static_cast<float>(config_.norm_eps)};
  if (!heads.empty()) {
    RETURN_IF_ERROR(CudaFinishHeads(scratch_.qkv, options_.dtype,
                                    batch.num_tokens, shape, heads, stream));
  }
  const CudaTokenSlots slots = {.positions = batch.positions,
                                .token_tables = batch.token_tables,
                                .tables = batch.attention.tables,
                                .table_stride = batch.attention.table_stride};
  return CudaRotateAndStore(scratch_.qkv, batch.num_tokens, config_.num_heads,
                            rotary_.view(), slots, kv_.cache, layer_idx,
                            stream);
}

absl::Status LoadedCudaTransformer::Attend(int layer_idx,
                                           const CudaBatch& batch,
                                           cudaStream_t stream) {
  return CudaAttention(batch.attention, LayerShape(layer_idx), scratch_.qkv,
                       config_.q_size() + 2 * config_.kv_size(), kv_.cache,
                       layer_idx, scratch_.attended, scratch_.attention,
                       device_, stream);
}

// The rows that go on to the head, in the order of the logits.
absl::StatusOr<LoadedCudaTransformer::TokenRows>
LoadedCudaTransformer::KeepLogitsTokens(const CudaBatch& batch,
                                        cudaStream_t stream) {
  if (batch.logits_tokens == nullptr) {
    return TokenRows{batch.num_logits, scratch_.x, scratch_.attended};
  }
  const int x_bytes = weights_.hidden_width * static_cast<int>(sizeof(float));
  const int attended_bytes = config_.q_size() * NumBytes(options_.dtype);
  RETURN_IF_ERROR(CudaGatherRows(
      batch.logits_tokens, batch.num_logits,
      {scratch_.x, scratch_.kept_x, x_bytes},
      {scratch_.attended, scratch_.kept_attended, attended_bytes}, stream));
  return TokenRows{batch.num_logits, scratch_.kept_x, scratch_.kept_attended};
}

// What follows attention, and the norm that the next part begins with.
// Two things that could save time here were measured on an H200 and left out:
// norms as part of the products around them made steps of 4 and 5 rows 1 to 6 %
// slower (the sums of squares are one more round trip before a product begins);
// blocks of the small kernels that bring the next weights into L2 made them
// between 4 % faster and 3 % slower, by model and by how much was brought.
absl::Status LoadedCudaTransformer::FinishLayer(
    const CudaTransformerLayer& layer, const TokenRows& rows,
    const float* next_norm, cudaStream_t stream) {
  const int n = rows.num_rows;
  ASSIGN_OR_RETURN(
      SplitKPartials addends,
      matmul_->RunSplitK(rows.attended, n, layer.output, rows.x, stream));
  RETURN_IF_ERROR(CudaAddRmsNorm(rows.x, addends, n, Norm(layer.mlp_norm),
                                 options_.dtype, scratch_.normed, stream));
  RETURN_IF_ERROR(matmul_->Run(scratch_.normed, n, layer.gate_up,
                               CudaEpilogue::kSiluMul, scratch_.gated, stream));
  ASSIGN_OR_RETURN(addends, matmul_->RunSplitK(scratch_.gated, n, layer.down,
                                               rows.x, stream));
  return CudaAddRmsNorm(rows.x, addends, n, Norm(next_norm), options_.dtype,
                        scratch_.normed, stream);
}

absl::StatusOr<std::unique_ptr<CudaTransformer>> LoadDirectory(
    const std::string& directory, const CudaTransformerOptions& given,
    const CudaDevice& device) {
  ASSIGN_OR_RETURN(const TransformerConfig config,
                   ReadTransformerConfig(directory));
  const CudaTransformerOptions options = WithBounds(given, config.vocab_size);
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(Annotate(CheckConfig(config), directory));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(directory));
  ASSIGN_OR_RETURN(
      CudaTransformerWeights weights,
      LoadCudaTransformerWeights(checkpoint, config, options.dtype));
  return LoadedCudaTransformer::Create(config, options, device,
                                       std::move(weights));
}

absl::StatusOr<std::unique_ptr<CudaTransformer>> MakeRandom(
    const TransformerConfig& config, const CudaTransformerOptions& given,
    const CudaDevice& device) {
  const CudaTransformerOptions options = WithBounds(given, config.vocab_size);
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckConfig(config));
  ASSIGN_OR_RETURN(CudaTransformerWeights weights,
                   RandomCudaTransformerWeights(config, options.dtype));
  return LoadedCudaTransformer::Create(config, options, device,
                                       std::move(weights));
}

}  // namespace

// Each token may be in a shared run and have positions of its own: two items.
// More, for small calls, let chunks be short enough to fill a device.
CudaTransformerOptions WithBounds(CudaTransformerOptions options,
                                  int vocab_size) {
  constexpr int kEnoughItems = 8192;
  constexpr int64_t kEnoughLogits = (int64_t{1} << 30) / sizeof(float);
  constexpr int64_t kFewestRows = 256;
  if (options.max_logits == 0) {
    const int64_t most = std::min(options.max_tokens, kMaxCudaLogitsRows);
    options.max_logits = static_cast<int>(std::min(
        most, std::max(kFewestRows, kEnoughLogits / std::max(vocab_size, 1))));
  }
  const auto fill = [&](int* bound, int enough) {
    if (*bound == 0) *bound = std::max(2 * options.max_tokens, enough);
  };
  fill(&options.max_attention_items, kEnoughItems);
  fill(&options.max_attention_partials, 2 * kEnoughItems);
  return options;
}

absl::StatusOr<std::unique_ptr<CudaTransformer>> CudaTransformer::Load(
    const std::string& directory, const CudaTransformerOptions& options,
    const CudaDevice& device) {
  try {
    ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                     CudaDeviceScope::Enter(device.ordinal));
    return LoadDirectory(directory, options, device);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(directory, ": not enough memory for the model");
  }
}

absl::StatusOr<std::unique_ptr<CudaTransformer>> CudaTransformer::Random(
    const TransformerConfig& config, const CudaTransformerOptions& options,
    const CudaDevice& device) {
  try {
    ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                     CudaDeviceScope::Enter(device.ordinal));
    return MakeRandom(config, options, device);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory for the model");
  }
}

}  // namespace espalier
