// MakeLargest: creates an object of the largest size for which there is memory,
// by repeated halving.
//
//   // Memory for a thousand pages, or for half as many, and so on.
//   ASSIGN_OR_RETURN(const auto pages, MakeLargest(1000, [](int64_t count) {
//                      return PageMemory::Create(count);
//                    }));
//   if (pages == nullptr) ...  // not even for one page
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"

namespace espalier {

// Returns make(size), a StatusOr of a pointer, for the first size among `most`,
// `most` / 2 and so on that does not run out of memory; null if all do.
// Errors: those of `make`, except kResourceExhausted, which halves the size,
// and kInvalidArgument, which means that the size is too small and returns
// null.
template <typename Make>
auto MakeLargest(int64_t most, const Make& make) -> decltype(make(most)) {
  for (int64_t size = most; size > 0; size /= 2) {
    auto made = make(size);
    if (made.ok()) return made;
    if (absl::IsInvalidArgument(made.status())) break;
    if (!absl::IsResourceExhausted(made.status())) return made;
  }
  return nullptr;
}

}  // namespace espalier
