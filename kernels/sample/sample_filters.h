// Tells which filters of SamplingParams are on. The host and a GPU ask here, so
// a new filter is named once, in KeepsFew or in KeepsAll.
#pragma once

#include "base/host_device.h"
#include "kernels/sample/sample.h"

namespace espalier {

ESPALIER_HOST_DEVICE inline bool HasTopK(const SamplingParams& params,
                                         int vocab_size) {
  return params.top_k > 0 && params.top_k < vocab_size;
}

// True if a filter that needs no sum of probabilities drops tokens of a row: it
// usually keeps few.
ESPALIER_HOST_DEVICE inline bool KeepsFew(const SamplingParams& params,
                                          int vocab_size) {
  return params.temperature != 0.0f &&
         (HasTopK(params, vocab_size) || params.min_p > 0.0f);
}

// True if only the temperature shapes a row's distribution: every filter is
// off.
ESPALIER_HOST_DEVICE inline bool KeepsAll(const SamplingParams& params,
                                          int vocab_size) {
  return !KeepsFew(params, vocab_size) && params.top_p == 1.0f &&
         params.typical_p == 1.0f;
}

// True if no filter but top_p is on beside those of KeepsFew.
ESPALIER_HOST_DEVICE inline bool HasAtMostTopP(SamplingParams params,
                                               int vocab_size) {
  params.min_p = 0.0f;
  params.top_k = 0;
  params.top_p = 1.0f;
  return KeepsAll(params, vocab_size);
}

}  // namespace espalier
