// CeilDiv: returns a / b, rounded up.
//
// REQUIRES: a >= 0; b > 0; a + b - 1 fits T.
#pragma once

#include <concepts>
#include <type_traits>

namespace espalier {

template <std::integral T>
constexpr T CeilDiv(T a, std::type_identity_t<T> b) {
  return (a + b - 1) / b;
}

}  // namespace espalier
