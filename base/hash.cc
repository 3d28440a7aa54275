#include "base/hash.h"

#include <random>

namespace espalier {

HashKey HashKey::Random() {
  std::random_device device;
  const auto word = [&device] {
    return uint64_t{device()} << 32 | uint64_t{device()};
  };
  const uint64_t start = word();
  return {start, word() | 1};
}

}  // namespace espalier
