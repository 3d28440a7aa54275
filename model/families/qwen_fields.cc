#include "model/families/qwen_fields.h"

#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"

namespace espalier {
namespace {

constexpr int kDefaultQwenWindow = 4096;
constexpr int kDefaultFullLayers = 28;

}  // namespace

absl::Status ReadQwenWindows(const json::object& json,
                             TransformerConfig* config) {
  ASSIGN_OR_RETURN(const bool uses_window,
                   ReadBool(json, "use_sliding_window", false));
  int window = 0;
  if (uses_window) {
    ASSIGN_OR_RETURN(window,
                     ReadWindow(json, "sliding_window", kDefaultQwenWindow));
  }
  ASSIGN_OR_RETURN(const int num_full, ReadInt(json, "max_window_layers", 0,
                                               kMaxLayers, kDefaultFullLayers));
  return ReadLayerTypes(
      json, window, [&](int i) { return window > 0 && i >= num_full; }, config);
}

}  // namespace espalier
