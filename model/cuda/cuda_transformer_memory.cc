#include "model/cuda/cuda_transformer_memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "base/ceil_div.h"
#include "base/field_error.h"
#include "base/status.h"
#include "kernels/elementwise/elementwise.h"
#include "model/cuda/cuda_transformer_weights.h"
#include "model/cuda/cuda_weight_uploader.h"
#include "model/positions.h"
#include "model/rope.h"
#include "model/rotary_order.h"

namespace espalier {
namespace {

absl::StatusOr<DeviceBuffer<float>> Upload(std::span<const float> values) {
  ASSIGN_OR_RETURN(auto buffer, DeviceBuffer<float>::Create(values.size()));
  RETURN_IF_CUDA_ERROR(cudaMemcpy(buffer.data(), values.data(),
                                  values.size_bytes(), cudaMemcpyHostToDevice));
  return buffer;
}

// No sequence gets further than the pages reach; so the table stays small
// against the key/value memory, whatever a config claims.
int NumPositions(const TransformerConfig& config, const CudaKvCache& cache) {
  const int64_t num_slots = int64_t{cache.num_pages} * cache.page_size;
  int num_positions = config.max_context;
  if (config.encoder) {
    num_positions = std::max(num_positions, config.encoder->max_tokens);
  }
  return static_cast<int>(std::min<int64_t>(num_positions, num_slots));
}

// Fills in all pointers of `scratch`; returns the bytes it takes.
size_t Place(const TransformerConfig& config,
             const CudaTransformerOptions& options, size_t attention_bytes,
             std::byte* base, CudaTransformerScratch* scratch) {
  const CudaTransformerWidths widths = WidthsOf(config);
  const size_t item = NumBytes(options.dtype);
  const size_t tokens = options.max_tokens;
  const size_t logits = options.max_logits;
  DeviceArena placer(base);
  scratch->x = placer.Take<float>(tokens * widths.hidden);
  scratch->normed = placer.TakeBytes(tokens * widths.hidden * item);
  // Convolutions are over before anything else is in these three.
  const bool has_features = widths.mel > 0;
  const int rows =
      has_features ? kNumTaps * std::max(2 * widths.mel, widths.hidden) : 0;
  const int frames = has_features ? 2 * widths.hidden : 0;
  const int embedded = has_features ? widths.hidden : 0;
  scratch->qkv = placer.TakeBytes(tokens * std::max(widths.qkv(), rows) * item);
  scratch->attended =
      placer.TakeBytes(tokens * std::max(widths.q, embedded) * item);
  scratch->gated =
      placer.TakeBytes(tokens * std::max(widths.intermediate, frames) * item);
  scratch->kept_x = placer.Take<float>(logits * widths.hidden);
  scratch->kept_attended = placer.TakeBytes(logits * widths.q * item);
  if (config.has_post_norms) {
    scratch->branch = placer.Take<float>(tokens * widths.hidden);
  }
  scratch->attention = placer.TakeBytes(attention_bytes);
  return placer.size();
}

}  // namespace

absl::StatusOr<CudaKvMemory> AllocateCudaKvCache(
    const TransformerConfig& config, const CudaTransformerOptions& options) {
  CudaKvMemory kv;
  kv.cache = {.dtype = options.dtype,
              .num_layers = config.num_layers(),
              .page_size = options.page_size,
              .num_kv_heads = config.num_kv_heads,
              .head_dim = WidthsOf(config).head};
  const int64_t page_bytes =
      kv.cache.page_stride() * config.num_layers() * NumBytes(options.dtype);
  const int64_t num_pages = std::min<int64_t>(
      options.kv_cache_bytes / page_bytes, std::numeric_limits<int32_t>::max());
  if (num_pages < 2) {
    return MakeFieldError(absl::StatusCode::kInvalidArgument,
                          OptionName{"kv_cache_bytes"},
                          " must hold two pages of ", MemorySize{page_bytes},
                          " (", OptionName{"page_size"}, " ", options.page_size,
                          "), got ", MemoryValue{options.kv_cache_bytes});
  }
  kv.cache.num_pages = static_cast<int>(num_pages);
  ASSIGN_OR_RETURN(kv.memory, ZeroedDeviceMemory("the key/value memory",
                                                 num_pages * page_bytes));
  kv.cache.data = kv.memory.data();
  return kv;
}

// All sources that are features are equally long, and each begins a page.
int NumSourcePages(const TransformerConfig& config,
                   const CudaTransformerOptions& options) {
  const EncoderConfig& encoder = *config.encoder;
  if (encoder.num_mel_bins == 0) {
    return CeilDiv(options.max_tokens, options.page_size);
  }
  return options.max_tokens / encoder.max_tokens *
         CeilDiv(encoder.max_tokens, options.page_size);
}

absl::StatusOr<CudaKvMemory> AllocateCudaSourceCache(
    const TransformerConfig& config, const CudaTransformerOptions& options) {
  CudaKvMemory kv;
  kv.cache = {.dtype = options.dtype,
              .num_layers = 1,
              .num_pages = NumSourcePages(config, options),
              .page_size = options.page_size,
              .num_kv_heads = config.num_kv_heads,
              .head_dim = WidthsOf(config).head};
  ASSIGN_OR_RETURN(
      kv.memory,
      ZeroedDeviceMemory("the keys and values of sources",
                         kv.cache.layer_stride() * NumBytes(options.dtype)));
  kv.cache.data = kv.memory.data();
  return kv;
}

absl::StatusOr<CudaSinusoids> MakeCudaSinusoids(const TransformerConfig& config,
                                                const CudaKvCache& cache) {
  const int num_positions = NumPositions(config, cache);
  const int width = WidthsOf(config).hidden;
  const std::vector<float> rows = SinusoidTable(config, num_positions);
  CudaSinusoids sinusoids;
  ASSIGN_OR_RETURN(
      sinusoids.memory,
      ZeroedDeviceMemory(
          "positions", size_t(num_positions) * width * NumBytes(cache.dtype)));
  sinusoids.table = {sinusoids.memory.data(), cache.dtype, num_positions,
                     width};
  ASSIGN_OR_RETURN(CudaWeightUploader uploader,
                   CudaWeightUploader::Create(width));
  RETURN_IF_ERROR(uploader.Upload(
      "positions",
      {.data = std::as_bytes(std::span(rows)), .num_rows = num_positions},
      sinusoids.table));
  return sinusoids;
}

absl::StatusOr<CudaRotaryMemory> MakeCudaRotary(const TransformerConfig& config,
                                                const RopeParameters& rope,
                                                const CudaKvCache& cache) {
  const int num_positions = NumPositions(config, cache);
  const RotaryTable table(InverseFrequencies(rope, config.head_dim),
                          num_positions, rope.attention_factor);
  // The kernel rotates whole heads (model/rotary_order.h).
  const auto padded = [&](std::span<const float> rows, float padding) {
    return PadRotaryRows(rows, num_positions, cache.head_dim, padding);
  };
  CudaRotaryMemory rotary;
  ASSIGN_OR_RETURN(rotary.cosines, Upload(padded(table.cosines(), 1)));
  ASSIGN_OR_RETURN(rotary.sines, Upload(padded(table.sines(), 0)));
  return rotary;
}

absl::StatusOr<CudaTransformerScratch> AllocateCudaTransformerScratch(
    const TransformerConfig& config, const CudaTransformerOptions& options,
    const CudaAttentionShape& attention_shape) {
  CudaAttentionInputs bounds;
  bounds.max_queries = options.max_tokens;
  bounds.max_items = options.max_attention_items;
  bounds.max_partials = options.max_attention_partials;
  const size_t attention_bytes =
      CudaAttentionScratchBytes(bounds, attention_shape);
  const auto place = [&](std::byte* base, CudaTransformerScratch* scratch) {
    return Place(config, options, attention_bytes, base, scratch);
  };
  CudaTransformerScratch scratch;
  ASSIGN_OR_RETURN(scratch.memory,
                   ZeroedDeviceMemory("scratch", place(nullptr, &scratch)));
  place(scratch.memory.data(), &scratch);
  return scratch;
}

}  // namespace espalier
