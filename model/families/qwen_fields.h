// Config fields that all Qwen families share.
#pragma once

#include "absl/status/status.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Reads use_sliding_window, sliding_window, max_window_layers and layer_types.
// If a window is used, layers from max_window_layers on have it, unless
// layer_types lists the layers.
absl::Status ReadQwenWindows(const json::object& json,
                             TransformerConfig* config);

}  // namespace espalier
