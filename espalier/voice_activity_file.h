// LoadVoiceActivity: the file of a network that finds where an audio has
// speech.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace espalier {

class VoiceActivity;

// Loads a network for TranscribeOptions::voice_activity: the file
// silero_vad_16k.safetensors of the Python package silero-vad.
// Errors: as SafetensorsFile::Open (model/safetensors.h); kInvalidArgument
// naming the file and the tensor that is not the network's.
absl::StatusOr<std::shared_ptr<const VoiceActivity>> LoadVoiceActivity(
    const std::string& path);

}  // namespace espalier
