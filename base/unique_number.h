// NewUniqueNumber: returns a number > 0 that no other call in this process
// returns. It identifies a value where an address could be reused.
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
