// LoadProgress: a callback that reports the progress of loading a model.
#pragma once

#include <cstdint>
#include <functional>

namespace espalier {

// Called by the loading thread with the bytes of weights packed so far; `done`
// rises to `total`.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

}  // namespace espalier
