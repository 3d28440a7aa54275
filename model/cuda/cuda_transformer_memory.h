// The device memory of a CudaTransformer besides its weights: the KV cache, the
// rotary table, and the scratch of a pass. All of it is allocated at load.
//
// Errors: kResourceExhausted, naming the purpose and the bytes, if device
// memory runs out; kInternal if the device fails.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "base/device_layout.h"
#include "kernels/attention/cuda_attention.h"
#include "kernels/cuda_matrix.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/kv_cache/cuda_rotate_and_store.h"
#include "model/cuda/cuda_transformer.h"
#include "model/rope.h"
#include "model/transformer_config.h"

namespace espalier {

// Bump allocator: places arrays one after the other from `base` on, aligned as
// in DeviceLayout. With a null base it only computes the size.
class DeviceArena {
 public:
  explicit DeviceArena(std::byte* base) : base_(base) {}

  template <typename T>
  T* Take(size_t size) {
    return layout_.Add("", size, sizeof(T)).At<T>(base_);
  }
  std::byte* TakeBytes(size_t bytes) { return Take<std::byte>(bytes); }
  size_t size() const { return layout_.bytes(); }

 private:
  std::byte* const base_;
  DeviceLayout layout_;
};

struct CudaKvMemory {
  CudaKvCache cache;
  DeviceBuffer<std::byte> memory;
};

// Pages for the keys and values of the encoder's current layer: enough for
// max_tokens.
// REQUIRES: the config has an encoder.
int NumSourcePages(const TransformerConfig& config,
                   const CudaTransformerOptions& options);
absl::StatusOr<CudaKvMemory> AllocateCudaSourceCache(
    const TransformerConfig& config, const CudaTransformerOptions& options);

// Sinusoidal encodings of all positions that sequences and sources can have.
struct CudaSinusoids {
  CudaMatrix table;  // [positions, hidden]
  DeviceBuffer<std::byte> memory;
};
absl::StatusOr<CudaSinusoids> MakeCudaSinusoids(const TransformerConfig& config,
                                                const CudaKvCache& cache);

// Allocates as many pages as fit in options.kv_cache_bytes.
// Errors: also kInvalidArgument if fewer than two fit.
absl::StatusOr<CudaKvMemory> AllocateCudaKvCache(
    const TransformerConfig& config, const CudaTransformerOptions& options);

struct CudaRotaryMemory {
  DeviceBuffer<float> cosines;  // [num_positions, cache.head_dim / 2]
  DeviceBuffer<float> sines;

  CudaRotary view() const { return {cosines.data(), sines.data()}; }
  size_t size_bytes() const {
    return cosines.size_bytes() + sines.size_bytes();
  }
};

// Makes the table for all positions that a sequence in `cache` can have.
absl::StatusOr<CudaRotaryMemory> MakeCudaRotary(const TransformerConfig& config,
                                                const RopeParameters& rope,
                                                const CudaKvCache& cache);

// Rows are tokens; sizes are CudaTransformerWidths; T is options.dtype.
struct CudaTransformerScratch {
  float* x = nullptr;      // [max_tokens, hidden]  residual stream
  void* normed = nullptr;  // [max_tokens, hidden]  T
  // With an encoder of features these also hold, one after the other, rows of
  // CudaIm2Col (qkv), frames (gated) and their embeddings (attended).
  void* qkv = nullptr;       // [max_tokens, qkv]  T
  void* attended = nullptr;  // [max_tokens, q]  T
  void* gated = nullptr;     // [max_tokens, intermediate]  T
  // Rows of the tokens that have logits, if not all have.
  float* kept_x = nullptr;        // [max_logits, hidden]
  void* kept_attended = nullptr;  // [max_logits, q]  T
  // Output of a part with a norm of its own, before it is added to x.
  float* branch = nullptr;    // [max_tokens, hidden]
  void* attention = nullptr;  // CudaAttention's scratch

  DeviceBuffer<std::byte> memory;
};

absl::StatusOr<CudaTransformerScratch> AllocateCudaTransformerScratch(
    const TransformerConfig& config, const CudaTransformerOptions& options,
    const CudaAttentionShape& attention_shape);

}  // namespace espalier
