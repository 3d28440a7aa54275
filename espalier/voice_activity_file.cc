#include "espalier/voice_activity_file.h"

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/shown_bytes.h"
#include "base/status.h"
#include "model/safetensors.h"
#include "speech/voice_activity.h"

namespace espalier {

absl::StatusOr<std::shared_ptr<const VoiceActivity>> LoadVoiceActivity(
    const std::string& path) {
  for (const std::string_view other : {".onnx", ".jit", ".pt"}) {
    if (!path.ends_with(other)) continue;
    return InvalidArgument(path, " must be a file of safetensors, got ", other,
                           ": take silero_vad_16k.safetensors, which the ",
                           "Python package silero-vad has beside it");
  }
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  std::map<std::string, VoiceTensor> tensors;
  for (const auto& [name, stored] : file.tensors()) {
    if (stored.dtype != "F32") {
      return InvalidArgument(path, ": tensor ", BytesInQuotes(name),
                             " must be F32, got ", stored.dtype);
    }
    // More than any of the network has: another file, which may be large.
    constexpr size_t kMaxBytes = 1 << 20;
    if (stored.data.size() > kMaxBytes) {
      return InvalidArgument(path, ": tensor ", BytesInQuotes(name),
                             " is not of the network");
    }
    VoiceTensor& tensor = tensors[name];
    tensor.shape = stored.shape;
    tensor.values.resize(stored.data.size() / sizeof(float));
    if (!stored.data.empty()) {
      std::memcpy(tensor.values.data(), stored.data.data(), stored.data.size());
    }
  }
  absl::StatusOr<VoiceActivity> network = VoiceActivity::Create(tensors);
  if (!network.ok()) return Annotate(network.status(), path);
  return std::make_shared<const VoiceActivity>(*std::move(network));
}

}  // namespace espalier
