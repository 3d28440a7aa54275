// The tokens of hand-written searches: an EOS and some letters.
#pragma once

#include "base/ids.h"

namespace espalier {

inline constexpr TokenId kEos = 0;
inline constexpr TokenId kA = 1;
inline constexpr TokenId kB = 2;
inline constexpr TokenId kC = 3;

}  // namespace espalier
