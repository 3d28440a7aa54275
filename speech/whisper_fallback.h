// Temperature fallback: a window whose text repeats itself, or that the model
// finds unlikely, is decoded again at the next temperature, until one passes.
//
// Thread safety: functions without state.
// Source: Radford et al. 2022, section 4.5; openai/whisper,
// whisper/transcribe.py; of those that all fail SYSTRAN/faster-whisper's
// choice.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace espalier {

// Unset: not checked.
struct FallbackThresholds {
  std::optional<double> compression_ratio = 2.4;  // a higher one fails
  std::optional<double> logprob = -1.0;           // a lower one fails
  std::optional<double> no_speech = 0.6;          // a higher one is silence
};

// A window as it was decoded at one temperature.
struct DecodedQuality {
  double avg_logprob = 0;
  double compression_ratio = 0;
};

// Returns the bytes of `text` divided by those that zlib makes of it; 0 of an
// empty text.
double CompressionRatio(std::string_view text);

// True if a window must be decoded again. Silence passes, whatever its text.
bool NeedsFallback(const FallbackThresholds& thresholds,
                   const DecodedQuality& decoded, double no_speech_prob);

// True if a window has no speech, and is skipped.
bool IsSilent(const FallbackThresholds& thresholds, double avg_logprob,
              double no_speech_prob);

// Returns which of `tries`, which all failed, is taken: that of the highest
// log-probability among those that do not repeat themselves; among all if all
// do. REQUIRES: tries is not empty.
size_t BestOfFailed(const FallbackThresholds& thresholds,
                    std::span<const DecodedQuality> tries);

}  // namespace espalier
