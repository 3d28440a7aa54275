#include "speech/whisper_fallback.h"

#include <zlib.h>

#include <vector>

#include "base/check.h"

namespace espalier {
namespace {

bool Repeats(const FallbackThresholds& thresholds,
             const DecodedQuality& decoded) {
  return thresholds.compression_ratio &&
         decoded.compression_ratio > *thresholds.compression_ratio;
}

bool IsUnlikely(const FallbackThresholds& thresholds,
                const DecodedQuality& decoded) {
  return thresholds.logprob && decoded.avg_logprob < *thresholds.logprob;
}

}  // namespace

double CompressionRatio(std::string_view text) {
  uLongf size = compressBound(text.size());
  std::vector<Bytef> bytes(size);
  // Level 6 is Python's default.
  CHECK_EQ(compress2(bytes.data(), &size,
                     reinterpret_cast<const Bytef*>(text.data()), text.size(),
                     /*level=*/6),
           Z_OK);
  return static_cast<double>(text.size()) / static_cast<double>(size);
}

bool NeedsFallback(const FallbackThresholds& thresholds,
                   const DecodedQuality& decoded, double no_speech_prob) {
  const bool is_unlikely = IsUnlikely(thresholds, decoded);
  const bool is_silence = is_unlikely && thresholds.no_speech &&
                          no_speech_prob > *thresholds.no_speech;
  return !is_silence && (is_unlikely || Repeats(thresholds, decoded));
}

bool IsSilent(const FallbackThresholds& thresholds, double avg_logprob,
              double no_speech_prob) {
  if (!thresholds.no_speech || no_speech_prob <= *thresholds.no_speech) {
    return false;
  }
  return !(thresholds.logprob && avg_logprob > *thresholds.logprob);
}

size_t BestOfFailed(const FallbackThresholds& thresholds,
                    std::span<const DecodedQuality> tries) {
  CHECK(!tries.empty());
  std::optional<size_t> best;
  for (const bool may_repeat : {false, true}) {
    if (best) break;
    for (size_t i = 0; i < tries.size(); ++i) {
      if (!may_repeat && Repeats(thresholds, tries[i])) continue;
      if (!best || tries[i].avg_logprob > tries[*best].avg_logprob) best = i;
    }
  }
  // Only NaN is not above itself; the first one stands for them.
  return best.value_or(0);
}

}  // namespace espalier
