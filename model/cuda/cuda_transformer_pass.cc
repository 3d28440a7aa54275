#include "model/cuda/cuda_transformer_pass.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "kernels/elementwise/cuda_finish_heads.h"
#include "kernels/elementwise/cuda_residual.h"
#include "kernels/kv_cache/cuda_rotate_and_store.h"

namespace espalier {
namespace {

// transformers has the factor in the dtype of the embeddings.
float EmbeddingScale(const TransformerConfig& config, DType dtype) {
  if (!config.scales_embeddings) return 1;
  const float scale = std::sqrt(static_cast<float>(config.hidden_size));
  if (dtype == DType::kBFloat16) {
    return __bfloat162float(__float2bfloat16_rn(scale));
  }
  return dtype == DType::kFloat16 ? __half2float(__float2half_rn(scale))
                                  : scale;
}

}  // namespace

CudaTransformerPass::CudaTransformerPass(const TransformerConfig& config,
                                         const CudaTransformerOptions& options,
                                         const CudaDevice& device,
                                         CudaTransformerWeights weights)
    : config_(config),
      options_(options),
      device_(device),
      weights_(std::move(weights)),
      embedding_scale_(EmbeddingScale(config, options.dtype)) {}

absl::StatusOr<std::unique_ptr<CudaTransformerPass>>
CudaTransformerPass::Create(const TransformerConfig& config,
                            const CudaTransformerOptions& options,
                            const CudaDevice& device,
                            CudaTransformerWeights weights) {
  std::unique_ptr<CudaTransformerPass> pass(
      new CudaTransformerPass(config, options, device, std::move(weights)));
  for (int i = 0; i < config.num_layers; ++i) {
    RETURN_IF_ERROR(PrepareCudaAttention(pass->LayerShape(i), device));
  }
  ASSIGN_OR_RETURN(
      pass->scratch_,
      AllocateCudaTransformerScratch(config, options, pass->attention_shape()));
  ASSIGN_OR_RETURN(pass->matmul_,
                   CudaMatMul::Create(
                       device, std::max(options.max_tokens, options.max_logits),
                       2 * pass->weights_.widths.intermediate));
  ASSIGN_OR_RETURN(pass->kv_, AllocateCudaKvCache(config, options));
  const bool is_rotated = config.positions == PositionKind::kRotary;
  ASSIGN_OR_RETURN(pass->rotary_,
                   MakeCudaRotary(config, is_rotated ? &config.rope : nullptr,
                                  pass->cache()));
  if (config.local_rope) {
    ASSIGN_OR_RETURN(
        pass->local_rotary_,
        MakeCudaRotary(config, &*config.local_rope, pass->cache()));
  }
  return pass;
}

CudaMemoryParts CudaTransformerPass::memory() const {
  const auto bytes = [](const auto& buffer) {
    return static_cast<int64_t>(buffer.size_bytes());
  };
  return {{"weights", bytes(weights_.memory)},
          {"keys and values", bytes(kv_.memory)},
          {"activations", bytes(scratch_.memory)},
          {"positions", bytes(rotary_) + bytes(local_rotary_)}};
}

CudaAttentionShape CudaTransformerPass::attention_shape() const {
  const int head_width = weights_.widths.head;
  CudaAttentionShape shape = {
      .num_heads = config_.num_heads,
      .num_kv_heads = config_.num_kv_heads,
      .head_dim = head_width,
      .page_size = options_.page_size,
      .dtype = options_.dtype,
      .soft_cap = static_cast<float>(config_.attention_soft_cap)};
  const double scalar = config_.query_pre_attn_scalar > 0
                            ? config_.query_pre_attn_scalar
                            : config_.head_dim;
  if (scalar != head_width) shape.scale = 1 / std::sqrt(scalar);
  return shape;
}

// With the layer's window, if that hides anything.
CudaAttentionShape CudaTransformerPass::LayerShape(int layer_idx) const {
  CudaAttentionShape shape = attention_shape();
  const int window = config_.window(layer_idx);
  if (window < config_.max_context) shape.window = window;
  return shape;
}

CudaNorm CudaTransformerPass::Norm(const CudaNormWeights& weights) const {
  return {.weight = weights.weight,
          .size = config_.hidden_size,
          .width = weights_.widths.hidden,
          .epsilon = static_cast<float>(config_.norm_eps),
          .bias = weights.bias};
}

// Between the parts of a layer x is the residual stream, and normed what the
// next part reads.
absl::Status CudaTransformerPass::Enqueue(const CudaBatch& batch, float* logits,
                                          cudaStream_t stream) {
  const auto& layers = weights_.layers;
  RETURN_IF_ERROR(Embed(batch, stream));
  TokenRows rows = {batch.num_tokens, scratch_.x, scratch_.attended};
  const int last = config_.num_layers - 1;
  for (int i = 0; i <= last; ++i) {
    RETURN_IF_ERROR(StoreProjections(i, batch, stream));
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
  return WriteLogits(rows.num_rows, logits, stream);
}

absl::Status CudaTransformerPass::Embed(const CudaBatch& batch,
                                        cudaStream_t stream) {
  const CudaNorm norm = Norm(weights_.layers[0].attention_norm);
  const CudaEmbedding embedding = {.tokens = weights_.embedding,
                                   .scale = embedding_scale_,
                                   .positions = weights_.positions};
  if (embedding.is_plain() && norm.bias == nullptr) {
    return CudaEmbed(batch.tokens, batch.num_tokens, weights_.embedding, norm,
                     scratch_.x, scratch_.normed, stream);
  }
  return CudaEmbedTokens(batch.tokens, batch.positions, batch.num_tokens,
                         embedding, norm, scratch_.x, scratch_.normed, stream);
}

// Leaves rotated q in qkv, and k and v in their pages.
absl::Status CudaTransformerPass::StoreProjections(int layer_idx,
                                                   const CudaBatch& batch,
                                                   cudaStream_t stream) {
  const CudaTransformerLayer& layer = weights_.layers[layer_idx];
  RETURN_IF_ERROR(matmul_->Run(scratch_.normed, batch.num_tokens, layer.qkv,
                               CudaEpilogue::kStore, scratch_.qkv, stream));
  RETURN_IF_ERROR(FinishHeads(layer, batch.num_tokens, stream));
  const CudaTokenSlots slots = {.positions = batch.positions,
                                .token_tables = batch.token_tables,
                                .tables = batch.attention.tables,
                                .table_stride = batch.attention.table_stride};
  const bool is_local = config_.local_rope && config_.window(layer_idx) > 0;
  const CudaRotaryMemory& rotary = is_local ? local_rotary_ : rotary_;
  return CudaRotateAndStore(scratch_.qkv, batch.num_tokens, config_.num_heads,
                            rotary.view(), slots, kv_.cache, layer_idx, stream);
}

absl::Status CudaTransformerPass::FinishHeads(const CudaTransformerLayer& layer,
                                              int num_tokens,
                                              cudaStream_t stream) {
  const CudaHeadShape shape = {.num_heads = config_.num_heads,
                               .num_kv_heads = config_.num_kv_heads,
                               .head_dim = weights_.widths.head,
                               .norm_size = config_.head_dim};
  const CudaHeadWeights heads = {
      .bias = layer.qkv_bias,
      .q_norm = layer.q_norm,
      .k_norm = layer.k_norm,
      .epsilon = static_cast<float>(config_.norm_eps)};
  if (heads.empty()) return absl::OkStatus();
  return CudaFinishHeads(scratch_.qkv, options_.dtype, num_tokens, shape, heads,
                         stream);
}

absl::Status CudaTransformerPass::Attend(int layer_idx, const CudaBatch& batch,
                                         cudaStream_t stream) {
  return CudaAttention(batch.attention, LayerShape(layer_idx), scratch_.qkv,
                       weights_.widths.qkv, kv_.cache, layer_idx,
                       scratch_.attended, scratch_.attention, device_, stream);
}

// The rows that go on to the head, in the order of the logits.
absl::StatusOr<CudaTransformerPass::TokenRows>
CudaTransformerPass::KeepLogitsTokens(const CudaBatch& batch,
                                      cudaStream_t stream) {
  if (batch.logits_tokens == nullptr) {
    return TokenRows{batch.num_logits, scratch_.x, scratch_.attended};
  }
  const CudaTransformerWidths& widths = weights_.widths;
  const int x_bytes = widths.hidden * static_cast<int>(sizeof(float));
  const int attended_bytes = widths.q * NumBytes(options_.dtype);
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
absl::Status CudaTransformerPass::FinishLayer(const CudaTransformerLayer& layer,
                                              const TokenRows& rows,
                                              const CudaNormWeights& next_norm,
                                              cudaStream_t stream) {
  RETURN_IF_ERROR(
      AddAndNormalise({rows.attended, layer.output, layer.output_bias,
                       layer.post_attention_norm},
                      rows, layer.mlp_norm, stream));
  RETURN_IF_ERROR(FeedForward(layer, rows.num_rows, stream));
  return AddAndNormalise(
      {scratch_.gated, layer.down, layer.down_bias, layer.post_mlp_norm}, rows,
      next_norm, stream);
}

absl::Status CudaTransformerPass::FeedForward(const CudaTransformerLayer& layer,
                                              int num_rows,
                                              cudaStream_t stream) {
  const CudaActivation activation = {
      .has_gate = config_.has_gate,
      .kind = config_.activation == Activation::kGeluTanh
                  ? CudaActivationKind::kGeluTanh
                  : CudaActivationKind::kSilu,
      .bias = layer.gate_up_bias};
  if (activation.has_gate && activation.kind == CudaActivationKind::kSilu &&
      activation.bias == nullptr) {
    return matmul_->Run(scratch_.normed, num_rows, layer.gate_up,
                        CudaEpilogue::kSiluMul, scratch_.gated, stream);
  }
  return matmul_->RunActivated(scratch_.normed, num_rows, layer.gate_up,
                               activation, scratch_.gated, stream);
}

absl::Status CudaTransformerPass::AddAndNormalise(
    const Addition& addition, const TokenRows& rows,
    const CudaNormWeights& next_norm, cudaStream_t stream) {
  const int n = rows.num_rows;
  const CudaNorm norm = Norm(next_norm);
  CudaBranch branch = {.bias = addition.bias, .post_norm = addition.post_norm};
  if (branch.post_norm == nullptr) {
    ASSIGN_OR_RETURN(
        branch.partials,
        matmul_->RunSplitK(addition.in, n, addition.w, rows.x, stream));
    if (branch.bias == nullptr && norm.bias == nullptr) {
      return CudaAddRmsNorm(rows.x, branch.partials, n, norm, options_.dtype,
                            scratch_.normed, stream);
    }
  } else {
    ASSIGN_OR_RETURN(branch.partials,
                     matmul_->RunPartials(addition.in, n, addition.w,
                                          scratch_.branch, stream));
  }
  return CudaAddBranch(rows.x, branch, n, norm, options_.dtype, scratch_.normed,
                       stream);
}

absl::Status CudaTransformerPass::WriteLogits(int num_rows, float* logits,
                                              cudaStream_t stream) {
  RETURN_IF_ERROR(matmul_->Run(scratch_.normed, num_rows, weights_.head,
                               CudaEpilogue::kStoreFloat, logits, stream));
  const auto cap = static_cast<float>(config_.logit_soft_cap);
  if (cap == 0) return absl::OkStatus();
  return CudaSoftCap(cap, int64_t{num_rows} * config_.vocab_size, logits,
                     stream);
}

}  // namespace espalier
