// The encoder's part of a pass: from the tokens of sources to the keys and
// values of cross-attention in their pages, and attention to these.
#include "base/status.h"
#include "kernels/kv_cache/cuda_rotate_and_store.h"
#include "model/cuda/cuda_transformer_pass.h"

namespace espalier {

// All layers keep their keys and values in the same pages: none needs them
// after its attention.
absl::Status CudaTransformerPass::ReadSources(const CudaBatch& batch,
                                              cudaStream_t stream) {
  const CudaSourceBatch& sources = batch.sources;
  const CudaTransformerStack& encoder = weights_.encoder;
  const StackTokens tokens = {sources.num_tokens, sources.tokens,
                              sources.positions,  sources.token_tables,
                              sources.attention,  source_kv_.cache};
  RETURN_IF_ERROR(Embed(encoder, tokens, stream));
  const TokenRows rows = {sources.num_tokens, scratch_.x, scratch_.attended};
  for (size_t i = 0; i < encoder.layers.size(); ++i) {
    const CudaTransformerLayer& layer = encoder.layers[i];
    RETURN_IF_ERROR(StoreProjections(layer, /*layer_idx=*/0, tokens, stream));
    RETURN_IF_ERROR(CudaAttention(
        sources.attention, SelfAttentionShape(encoder), scratch_.qkv,
        weights_.widths.qkv(), source_kv_.cache, /*layer=*/0, scratch_.attended,
        scratch_.attention, device_, stream));
    RETURN_IF_ERROR(
        FinishLayer(layer, OutputOf(layer), rows,
                    i + 1 == encoder.layers.size()
                        ? encoder.final_norm
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
    const CudaTransformerLayer& layer = weights_.layers[i];
    const CudaProductWeights& kv = layer[MatrixPart::kCrossKv];
    RETURN_IF_ERROR(matmul_->Run(scratch_.normed, sources.num_tokens, kv.matrix,
                                 CudaEpilogue::kStore, scratch_.qkv, stream));
    RETURN_IF_ERROR(FinishHeads({.bias = kv.bias}, /*num_heads=*/0,
                                config_.num_kv_heads, sources.num_tokens,
                                stream));
    // Models with an encoder rotate nothing.
    RETURN_IF_ERROR(CudaRotateAndStore(scratch_.qkv, sources.num_tokens,
                                       /*num_heads=*/0, rotary_.view(), slots,
                                       kv_.cache, i, stream));
  }
  return absl::OkStatus();
}

absl::Status CudaTransformerPass::AttendToSource(int layer_idx,
                                                 const CudaBatch& batch,
                                                 cudaStream_t stream) {
  const CudaTransformerLayer& layer = weights_.layers[layer_idx];
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
  return CudaAttention(batch.cross_attention, attention_shape(), scratch_.qkv,
                       weights_.widths.q, kv_.cache, layer_idx,
                       scratch_.attended, scratch_.attention, device_, stream);
}

CudaTransformerPass::AttentionOutput CudaTransformerPass::CrossOutputOf(
    const CudaTransformerLayer& layer) {
  return {layer[MatrixPart::kCrossOutput], nullptr,
          layer[NormPart::kCrossNorm]};
}

}  // namespace espalier
