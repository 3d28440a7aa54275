// Values of float32 that kernels compare with.
#pragma once

#include <limits>

namespace espalier {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kLowest = std::numeric_limits<float>::lowest();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace espalier
