// What the families of Qwen share.
#pragma once

#include "absl/status/status.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// use_sliding_window, sliding_window, max_window_layers and layer_types: where
// a window is used, layers from max_window_layers on have it, unless
// layer_types says which.
absl::Status ReadQwenWindows(const json::object& json,
                             TransformerConfig* config);

}  // namespace espalier
