#include "model/cuda/cuda_transformer_pass.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.h"
#include "kernels/attention/cuda_attention_scores.h"
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

CudaActivationKind KindOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return CudaActivationKind::kSilu;
    case Activation::kGeluTanh:
      return CudaActivationKind::kGeluTanh;
    case Activation::kGelu:
      return CudaActivationKind::kGelu;
    case Activation::kRelu:
      return CudaActivationKind::kRelu;
  }
  return CudaActivationKind::kSilu;
}

}  // namespace

CudaTransformerPass::CudaTransformerPass(
    std::shared_ptr<const CudaTransformerWeights> weights,
    const CudaTransformerOptions& options, const CudaDevice& device)
    : shared_weights_(std::move(weights)),
      weights_(*shared_weights_),
      config_(weights_.config),
      options_(options),
      device_(device),
      embedding_scale_(EmbeddingScale(config_, options.dtype)) {}

absl::StatusOr<std::unique_ptr<CudaTransformerPass>>
CudaTransformerPass::Create(
    std::shared_ptr<const CudaTransformerWeights> weights,
    const CudaTransformerOptions& options, const CudaDevice& device) {
  std::unique_ptr<CudaTransformerPass> pass(
      new CudaTransformerPass(std::move(weights), options, device));
  const TransformerConfig& config = pass->config_;
  for (int i = 0; i < config.num_layers(); ++i) {
    RETURN_IF_ERROR(PrepareCudaAttention(pass->LayerShape(i), device));
  }
  ASSIGN_OR_RETURN(
      pass->scratch_,
      AllocateCudaTransformerScratch(config, options, pass->attention_shape()));
  const CudaTransformerWidths& widths = pass->weights_.widths;
  CudaMatMulLimits limits = {
      .max_rows = std::max(options.max_tokens, options.max_logits),
      .max_outputs = 2 * widths.intermediate,
      .max_fp8_weights = MaxFp8Weights(pass->weights_)};
  if (widths.mel > 0) {  // the first convolution has a row for each frame
    limits.max_rows = std::max(limits.max_rows, 2 * options.max_tokens);
  }
  if (options.dtype != DType::kFloat32) {
    limits.largest_matrix = MaxMatrixWeights(pass->weights_);
  }
  ASSIGN_OR_RETURN(pass->matmul_, CudaMatMul::Create(device, limits));
  ASSIGN_OR_RETURN(pass->kv_, AllocateCudaKvCache(config, options));
  if (config.positions == PositionKind::kRotary) {
    ASSIGN_OR_RETURN(pass->rotary_,
                     MakeCudaRotary(config, config.rope, pass->cache()));
  }
  if (config.local_rope) {
    ASSIGN_OR_RETURN(pass->local_rotary_,
                     MakeCudaRotary(config, *config.local_rope, pass->cache()));
  }
  if (config.positions == PositionKind::kSinusoidal) {
    ASSIGN_OR_RETURN(pass->sinusoids_,
                     MakeCudaSinusoids(config, pass->cache()));
  }
  if (config.encoder) {
    ASSIGN_OR_RETURN(pass->source_kv_,
                     AllocateCudaSourceCache(config, options));
  }
  return pass;
}

CudaMemoryParts CudaTransformerPass::memory() const {
  const auto bytes = [](const auto& buffer) {
    return static_cast<int64_t>(buffer.size_bytes());
  };
  return {{"weights", bytes(weights_.memory)},
          {"keys and values", bytes(kv_.memory)},
          {"activations", bytes(scratch_.memory) + bytes(source_kv_.memory)},
          {"positions",
           bytes(rotary_) + bytes(local_rotary_) + bytes(sinusoids_.memory)}};
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
  shape.without_tensor_cores = config_.positions == PositionKind::kDistances;
  return shape;
}

CudaAttentionShape CudaTransformerPass::SelfAttentionShape(
    const CudaTransformerStack& stack, int layer_idx) const {
  CudaAttentionShape shape = attention_shape();
  shape.biases = stack.distance_biases_of(layer_idx);
  shape.max_distance = config_.max_distance;
  return shape;
}

// With the layer's window, if that hides anything.
CudaAttentionShape CudaTransformerPass::LayerShape(int layer_idx) const {
  CudaAttentionShape shape = SelfAttentionShape(weights_, layer_idx);
  const int window = config_.layers[layer_idx].window;
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

CudaNorm CudaTransformerPass::NormOfSum(const CudaNormWeights& own,
                                        const CudaNormWeights& next) const {
  CudaNorm norm = Norm(config_.norms_sums ? own : next);
  norm.replaces_x = config_.norms_sums;
  return norm;
}

// Invariant between the parts of a layer: x is the residual stream, and normed
// the next part's input.
absl::Status CudaTransformerPass::Enqueue(const CudaBatch& batch, float* logits,
                                          cudaStream_t stream) {
  if (batch.sources.num_tokens > 0) {
    RETURN_IF_ERROR(ReadSources(batch, stream));
  }
  if (batch.num_tokens == 0) return absl::OkStatus();
  const auto& layers = weights_.layers;
  const StackTokens tokens = {batch.num_tokens, batch.tokens,
                              batch.positions,  batch.token_tables,
                              batch.attention,  kv_.cache};
  RETURN_IF_ERROR(Embed(weights_, tokens, stream));
  TokenRows rows = {batch.num_tokens, scratch_.x, scratch_.attended};
  const int last = config_.num_layers() - 1;
  for (int i = 0; i <= last; ++i) {
    RETURN_IF_ERROR(StoreProjections(layers[i], i, tokens, stream));
    if (i == last && batch.num_logits == 0) return absl::OkStatus();
    RETURN_IF_ERROR(CudaAttention(
        batch.attention, LayerShape(i), scratch_.qkv, weights_.widths.qkv(),
        kv_.cache, i, scratch_.attended, scratch_.attention, device_, stream));
    const bool has_cross_attention = config_.layers[i].has_cross_attention;
    if (has_cross_attention) RETURN_IF_ERROR(AttendToSource(i, batch, stream));
    if (i == last) {
      ASSIGN_OR_RETURN(rows, KeepLogitsTokens(batch, stream));
    }
    RETURN_IF_ERROR(FinishLayer(
        layers[i],
        has_cross_attention ? CrossOutputOf(layers[i]) : OutputOf(layers[i]),
        rows,
        i == last ? weights_[NormPart::kFinalNorm]
                  : layers[i + 1][NormPart::kAttentionNorm],
        stream));
  }
  return WriteLogits(rows.num_rows, logits, stream);
}

// Writes the first layer's input to `normed`: its attention norm of x, or, with
// norms_sums, x itself after the embedding norm, if any.
absl::Status CudaTransformerPass::Embed(const CudaTransformerStack& stack,
                                        const StackTokens& tokens,
                                        cudaStream_t stream) {
  const CudaEmbedding embedding = {
      .tokens = weights_[TablePart::kEmbedding],
      .scale = embedding_scale_,
      .positions = sinusoids_.table.data == nullptr
                       ? stack[TablePart::kPositions]
                       : sinusoids_.table,
      .token_without_position = config_.token_without_position.value_or(-1)};
  const CudaNorm first_norm = Norm(stack.layers[0][NormPart::kAttentionNorm]);
  CudaNorm norm = first_norm;
  if (config_.has_embedding_norm || config_.norms_sums) {
    norm = Norm(stack[NormPart::kEmbeddingNorm]);
    norm.replaces_x = config_.has_embedding_norm;
  }
  if (embedding.is_plain() && norm.is_plain()) {
    return CudaEmbed(tokens.tokens, tokens.num_tokens,
                     weights_[TablePart::kEmbedding], norm, scratch_.x,
                     scratch_.normed, stream);
  }
  RETURN_IF_ERROR(CudaEmbedTokens(tokens.tokens, tokens.positions,
                                  tokens.num_tokens, embedding, norm,
                                  scratch_.x, scratch_.normed, stream));
  if (!config_.has_embedding_norm || config_.norms_sums) {
    return absl::OkStatus();
  }
  return CudaAddBranch(scratch_.x, {}, tokens.num_tokens, first_norm,
                       options_.dtype, scratch_.normed, stream);
}

// Leaves rotated q in qkv, and k and v in their pages.
absl::Status CudaTransformerPass::StoreProjections(const CudaWeightParts& layer,
                                                   int layer_idx,
                                                   const StackTokens& tokens,
                                                   cudaStream_t stream) {
  const CudaProductWeights& qkv = layer[MatrixPart::kQkv];
  RETURN_IF_ERROR(matmul_->Run(scratch_.normed, tokens.num_tokens, qkv.matrix,
                               CudaEpilogue::kStore, scratch_.qkv, stream));
  CudaHeadWeights heads = {.q_norm = layer[NormPart::kQueryNorm].weight,
                           .k_norm = layer[NormPart::kKeyNorm].weight,
                           .epsilon = static_cast<float>(config_.norm_eps)};
  const float* bias = qkv.bias;
  if (!heads.empty()) heads.bias = std::exchange(bias, nullptr);
  RETURN_IF_ERROR(FinishHeads(heads, config_.num_heads, config_.num_kv_heads,
                              tokens.num_tokens, stream));
  const CudaTokenSlots slots = {.positions = tokens.positions,
                                .token_tables = tokens.token_tables,
                                .tables = tokens.attention.tables,
                                .table_stride = tokens.attention.table_stride};
  const bool is_local =
      config_.local_rope && config_.layers[layer_idx].window > 0;
  const CudaRotaryMemory& rotary = is_local ? local_rotary_ : rotary_;
  return CudaRotateAndStore(scratch_.qkv, tokens.num_tokens, config_.num_heads,
                            bias, rotary.view(), slots, tokens.cache, layer_idx,
                            stream);
}

// Applies biases and head norms to the heads of each row of qkv, in place.
absl::Status CudaTransformerPass::FinishHeads(const CudaHeadWeights& heads,
                                              int num_heads, int num_kv_heads,
                                              int num_tokens,
                                              cudaStream_t stream) {
  if (heads.empty()) return absl::OkStatus();
  return CudaFinishHeads(scratch_.qkv, options_.dtype, num_tokens,
                         {.num_heads = num_heads,
                          .num_kv_heads = num_kv_heads,
                          .head_dim = weights_.widths.head,
                          .norm_size = config_.head_dim},
                         heads, stream);
}

CudaTransformerPass::AttentionOutput CudaTransformerPass::OutputOf(
    const CudaWeightParts& layer) {
  return {layer[MatrixPart::kOutput],
          layer[NormPart::kPostAttentionNorm].weight,
          layer[NormPart::kAttentionNorm]};
}

// Returns the rows that have logits, in the order of the logits.
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

// Runs a layer from the attention's output projection on, up to the norm that
// the next layer begins with. Two optimisations were measured on an H200 and
// rejected. Fusing norms into the products around them made steps of 4 and 5
// rows 1 to 6 % slower: the sums of squares are one more round trip before a
// product begins. Prefetching the next weights into L2 from the small kernels
// made steps between 4 % faster and 3 % slower, depending on the model and the
// amount prefetched.
absl::Status CudaTransformerPass::FinishLayer(const CudaWeightParts& layer,
                                              const AttentionOutput& output,
                                              const TokenRows& rows,
                                              const CudaNormWeights& next_norm,
                                              cudaStream_t stream) {
  RETURN_IF_ERROR(AddAndNormalise(
      {rows.attended, output.product, output.post_norm}, rows,
      NormOfSum(output.norm, layer[NormPart::kMlpNorm]), stream));
  RETURN_IF_ERROR(FeedForward(layer, rows.num_rows, stream));
  return AddAndNormalise({scratch_.gated, layer[MatrixPart::kDown],
                          layer[NormPart::kPostMlpNorm].weight},
                         rows, NormOfSum(layer[NormPart::kMlpNorm], next_norm),
                         stream);
}

absl::Status CudaTransformerPass::FeedForward(const CudaWeightParts& layer,
                                              int num_rows,
                                              cudaStream_t stream) {
  const CudaProductWeights& gate_up = layer[MatrixPart::kGateUp];
  const CudaActivation activation = {.has_gate = config_.has_gate,
                                     .kind = KindOf(config_.activation),
                                     .bias = gate_up.bias};
  if (activation.has_gate && activation.kind == CudaActivationKind::kSilu &&
      activation.bias == nullptr) {
    return matmul_->Run(scratch_.normed, num_rows, gate_up.matrix,
                        CudaEpilogue::kSiluMul, scratch_.gated, stream);
  }
  return matmul_->RunActivated(scratch_.normed, num_rows, gate_up.matrix,
                               activation, scratch_.gated, stream);
}

absl::Status CudaTransformerPass::AddAndNormalise(const Addition& addition,
                                                  const TokenRows& rows,
                                                  const CudaNorm& norm,
                                                  cudaStream_t stream) {
  const int n = rows.num_rows;
  CudaBranch branch = {.bias = addition.product.bias,
                       .post_norm = addition.post_norm};
  if (branch.post_norm == nullptr) {
    ASSIGN_OR_RETURN(branch.partials,
                     matmul_->RunSplitK(addition.in, n, addition.product.matrix,
                                        rows.x, stream));
    if (branch.bias == nullptr && norm.is_plain()) {
      return CudaAddRmsNorm(rows.x, branch.partials, n, norm, options_.dtype,
                            scratch_.normed, stream);
    }
  } else {
    ASSIGN_OR_RETURN(
        branch.partials,
        matmul_->RunPartials(addition.in, n, addition.product.matrix,
                             scratch_.branch, stream));
  }
  return CudaAddBranch(rows.x, branch, n, norm, options_.dtype, scratch_.normed,
                       stream);
}

absl::Status CudaTransformerPass::WriteLogits(int num_rows, float* logits,
                                              cudaStream_t stream) {
  const CudaProductWeights& head = weights_[MatrixPart::kHead];
  RETURN_IF_ERROR(matmul_->Run(scratch_.normed, num_rows, head.matrix,
                               CudaEpilogue::kStoreFloat, logits, stream));
  if (head.bias != nullptr) {
    RETURN_IF_ERROR(
        CudaAddToRows(head.bias, num_rows, config_.vocab_size, logits, stream));
  }
  const auto cap = static_cast<float>(config_.logit_soft_cap);
  if (cap == 0) return absl::OkStatus();
  return CudaSoftCap(cap, int64_t{num_rows} * config_.vocab_size, logits,
                     stream);
}

// The first layer's input of sources that are features: their convolutions plus
// positions, and the norm of that.
absl::Status CudaTransformerPass::EmbedFeatures(const CudaSourceBatch& sources,
                                                cudaStream_t stream) {
  const CudaTransformerStack& encoder = weights_.encoder;
  const int width = weights_.widths.hidden;
  CudaFrames frames = {.data = sources.features,
                       .num_frames = 2 * sources.num_tokens,
                       .num_cols = config_.encoder->num_mel_bins,
                       .frames_per_source = 2 * config_.encoder->max_tokens};
  RETURN_IF_ERROR(Convolve(frames, /*stride=*/1, weights_.widths.mel,
                           encoder[MatrixPart::kConv1], scratch_.gated,
                           stream));
  frames.data = scratch_.gated;
  frames.dtype = options_.dtype;
  frames.num_cols = width;
  RETURN_IF_ERROR(Convolve(frames, /*stride=*/2, width,
                           encoder[MatrixPart::kConv2], scratch_.attended,
                           stream));
  const CudaEmbedding embedding = {
      .tokens = {scratch_.attended, options_.dtype, sources.num_tokens, width},
      .positions = encoder[TablePart::kPositions]};
  return CudaEmbedTokens(/*tokens=*/nullptr, sources.positions,
                         sources.num_tokens, embedding,
                         Norm(encoder.layers[0][NormPart::kAttentionNorm]),
                         scratch_.x, scratch_.normed, stream);
}

// out = gelu(convolution), a row for each output.
absl::Status CudaTransformerPass::Convolve(const CudaFrames& frames, int stride,
                                           int width,
                                           const CudaProductWeights& product,
                                           void* out, cudaStream_t stream) {
  static_assert(kCudaConvolutionTaps == kNumTaps);
  RETURN_IF_ERROR(
      CudaIm2Col(frames, stride, options_.dtype, width, scratch_.qkv, stream));
  return matmul_->RunActivated(scratch_.qkv, frames.num_frames / stride,
                               product.matrix,
                               {.has_gate = false,
                                .kind = CudaActivationKind::kGelu,
                                .bias = product.bias},
                               out, stream);
}

// All layers keep their keys and values in the same pages: none needs them
// after its attention.
absl::Status CudaTransformerPass::ReadSources(const CudaBatch& batch,
                                              cudaStream_t stream) {
  const CudaSourceBatch& sources = batch.sources;
  const CudaTransformerStack& encoder = weights_.encoder;
  const StackTokens tokens = {sources.num_tokens, sources.tokens,
                              sources.positions,  sources.token_tables,
                              sources.attention,  source_kv_.cache};
  RETURN_IF_ERROR(sources.features == nullptr ? Embed(encoder, tokens, stream)
                                              : EmbedFeatures(sources, stream));
  const TokenRows rows = {sources.num_tokens, scratch_.x, scratch_.attended};
  for (size_t i = 0; i < encoder.layers.size(); ++i) {
    const CudaWeightParts& layer = encoder.layers[i];
    RETURN_IF_ERROR(StoreProjections(layer, /*layer_idx=*/0, tokens, stream));
    RETURN_IF_ERROR(CudaAttention(
        sources.attention, SelfAttentionShape(encoder, i), scratch_.qkv,
        weights_.widths.qkv(), source_kv_.cache, /*layer=*/0, scratch_.attended,
        scratch_.attention, device_, stream));
    RETURN_IF_ERROR(
        FinishLayer(layer, OutputOf(layer), rows,
                    i + 1 == encoder.layers.size()
                        ? encoder[NormPart::kFinalNorm]
                        : encoder.layers[i + 1][NormPart::kAttentionNorm],
                    stream));
  }
  return StoreSources(batch, stream);
}

// Computes the decoder's cross-attention keys and values of the encoder's
// output, which is in `normed`.
absl::Status CudaTransformerPass::StoreSources(const CudaBatch& batch,
                                               cudaStream_t stream) {
  const CudaSourceBatch& sources = batch.sources;
  const CudaTokenSlots slots = {
      .positions = sources.positions,
      .token_tables = sources.cross_tables,
      .tables = batch.cross_attention.tables,
      .table_stride = batch.cross_attention.table_stride};
  for (int i = 0; i < config_.num_layers(); ++i) {
    const CudaWeightParts& layer = weights_.layers[i];
    const CudaProductWeights& kv = layer[MatrixPart::kCrossKv];
    RETURN_IF_ERROR(matmul_->Run(scratch_.normed, sources.num_tokens, kv.matrix,
                                 CudaEpilogue::kStore, scratch_.qkv, stream));
    // Models with an encoder have no RoPE.
    RETURN_IF_ERROR(CudaRotateAndStore(scratch_.qkv, sources.num_tokens,
                                       /*num_heads=*/0, kv.bias, CudaRotary(),
                                       slots, kv_.cache, i, stream));
  }
  return absl::OkStatus();
}

absl::Status CudaTransformerPass::AttendToSource(int layer_idx,
                                                 const CudaBatch& batch,
                                                 cudaStream_t stream) {
  const CudaWeightParts& layer = weights_.layers[layer_idx];
  const TokenRows rows = {batch.num_tokens, scratch_.x, scratch_.attended};
  const AttentionOutput output = OutputOf(layer);
  RETURN_IF_ERROR(AddAndNormalise(
      {rows.attended, output.product, output.post_norm}, rows,
      NormOfSum(output.norm, layer[NormPart::kCrossNorm]), stream));
  const CudaProductWeights& query = layer[MatrixPart::kCrossQuery];
  RETURN_IF_ERROR(matmul_->Run(scratch_.normed, batch.num_tokens, query.matrix,
                               CudaEpilogue::kStore, scratch_.qkv, stream));
  RETURN_IF_ERROR(FinishHeads({.bias = query.bias}, config_.num_heads,
                              /*num_kv_heads=*/0, batch.num_tokens, stream));
  for (const CudaAlignedTokens& aligned : batch.aligned) {
    RETURN_IF_ERROR(ReportScores(layer_idx, aligned, batch, stream));
  }
  return CudaAttention(batch.cross_attention, attention_shape(), scratch_.qkv,
                       weights_.widths.q, kv_.cache, layer_idx,
                       scratch_.attended, scratch_.attention, device_, stream);
}

// Reports the scores of the query's heads of a layer, of which `qkv` has the
// queries of cross-attention.
absl::Status CudaTransformerPass::ReportScores(int layer_idx,
                                               const CudaAlignedTokens& aligned,
                                               const CudaBatch& batch,
                                               cudaStream_t stream) {
  const AlignmentQuery& query = *aligned.query;
  const int q_width = weights_.widths.q;
  CudaAttentionScoresInputs inputs = {
      .num_queries = aligned.num_tokens,
      .num_positions = query.num_positions,
      .num_places = static_cast<int>(query.heads.size()),
      .q_stride = q_width,
      .q = static_cast<const std::byte*>(scratch_.qkv) +
           int64_t{aligned.first_token} * q_width * NumBytes(options_.dtype),
      .table =
          batch.cross_attention.tables +
          int64_t{aligned.source_table} * batch.cross_attention.table_stride};
  CudaScoredHeads& heads = inputs.heads;
  for (int i = 0; i < inputs.num_places; ++i) {
    if (query.heads[i].layer == layer_idx) {
      heads.heads[heads.count] = query.heads[i].head;
      heads.places[heads.count++] = i;
    }
    const bool is_last = i + 1 == inputs.num_places;
    if (heads.count == 0 || (heads.count < kMaxCudaScoredHeads && !is_last)) {
      continue;
    }
    RETURN_IF_ERROR(CudaAttentionScores(inputs, attention_shape(), kv_.cache,
                                        layer_idx, aligned.scores, stream));
    heads.count = 0;
  }
  return absl::OkStatus();
}

CudaTransformerPass::AttentionOutput CudaTransformerPass::CrossOutputOf(
    const CudaWeightParts& layer) {
  return {layer[MatrixPart::kCrossOutput], nullptr,
          layer[NormPart::kCrossNorm]};
}

}  // namespace espalier
