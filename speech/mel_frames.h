// The SIMD core of LogMel: several frames at once, a frame in each lane of the
// vectors, so that a frame's numbers do not depend on which come with it.
#pragma once

#include "speech/log_mel.h"

namespace espalier {

// Bins of the power spectrum of a frame, from 0 to 8 kHz.
inline constexpr int kNumBins = kFrameSize / 2 + 1;

// Writes log10(max(energy, 1e-10)) of each band and frame.
//   samples  [kFrameStep * (num_frames - 1) + kFrameSize]
//   logs     [num_frames, bands]
void WriteMelFrames(const float* samples, int num_frames,
                    const MelFilters& filters, float* logs);

}  // namespace espalier
