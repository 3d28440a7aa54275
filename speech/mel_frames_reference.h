// The twin of mel_frames.h: the discrete Fourier transform by its definition.
#pragma once

#include "speech/log_mel.h"

namespace espalier {

// As WriteMelFrames.
void WriteMelFramesReference(const float* samples, int num_frames,
                             const MelFilters& filters, float* logs);

}  // namespace espalier
