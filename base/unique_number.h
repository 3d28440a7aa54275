// A number that no other call in this process returns; > 0. It names a value
// where an address would not do: another value may come to stand there.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace espalier {

inline int64_t NewUniqueNumber() {
  static std::atomic<int64_t> last = 0;
  return ++last;
}

}  // namespace espalier
