// LoadProgress: how far the loading of a model is.
#pragma once

#include <cstdint>
#include <functional>

namespace espalier {

// Called with how many bytes of the weights are packed, as `done` rises to
// `total`, by the thread that loads.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

}  // namespace espalier
