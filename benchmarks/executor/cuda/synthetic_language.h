// SyntheticLanguage: a model whose distributions resemble a language's and
// whose agreement with another one is given, to measure what drafts of beams
// gain with random weights. It runs the wrapped model, in the same time, and
// replaces its logits by SyntheticLogit() of the last token and its position.
//
// A share of kCertainShare of all contexts has one likely continuation
// (probability about 0.95), the others several (about 0.45, 0.25, ...). A draft
// model adds noise of a standard deviation `noise` to the logits.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "benchmarks/executor/cuda/wrapped_model.h"

#ifdef __CUDACC__
#define ESPALIER_BENCHMARK_HOST_DEVICE __host__ __device__
#else
#define ESPALIER_BENCHMARK_HOST_DEVICE
#endif

namespace espalier {

inline constexpr int kNumContinuations = 32;  // per context
inline constexpr float kCertainShare = 0.5f;
inline constexpr float kOtherLogit = -30;  // all other tokens

// Finalizer of MurmurHash3 (Appleby, public domain).
ESPALIER_BENCHMARK_HOST_DEVICE inline uint32_t MixBits(uint32_t h) {
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  return h ^ h >> 16;
}

ESPALIER_BENCHMARK_HOST_DEVICE inline uint32_t ContextHash(int token,
                                                           int position) {
  return MixBits(MixBits(token + 1) ^ (0x9E3779B9u * (position + 1)));
}

// Approximately normal, of mean 0 and variance 1: a sum of uniform numbers.
ESPALIER_BENCHMARK_HOST_DEVICE inline float NormalNumber(uint32_t seed) {
  float sum = 0;
  for (int i = 0; i < 12; ++i) {
    sum += (MixBits(seed + 0x85EBCA77u * (i + 1)) >> 8) * 0x1p-24f;
  }
  return sum - 6;
}

// Returns the logit of the `i`-th continuation of a context.
ESPALIER_BENCHMARK_HOST_DEVICE inline float SyntheticLogit(uint32_t context,
                                                           int i, float noise) {
  const bool is_certain =
      (MixBits(context + 0x27D4EB2Fu) >> 8) * 0x1p-24f < kCertainShare;
  const float step = is_certain ? 3.0f : 0.6f;
  const uint32_t own = MixBits(context ^ 0xC2B2AE3Du * (i + 1));
  return -step * i + 0.3f * NormalNumber(own) +
         noise * NormalNumber(MixBits(own + 0x165667B1u));
}

class SyntheticLanguage : public WrappedModel {
 public:
  SyntheticLanguage(std::shared_ptr<CudaModel> model, float noise)
      : WrappedModel(std::move(model)), noise_(noise) {}

  absl::Status Enqueue(const CudaBatch& batch, float* logits,
                       cudaStream_t stream) override;

 private:
  const float noise_;
};

}  // namespace espalier
