// MakeLargest: as much of something as there is memory for.
//
//   // Memory for a thousand pages, or for half as many, and so on.
//   ASSIGN_OR_RETURN(const auto pages, MakeLargest(1000, [](int64_t count) {
//                      return PageMemory::Create(count);
//                    }));
//   if (pages == nullptr) ...  // not for one
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"

namespace espalier {

// What `make(size)` returns, a StatusOr of a pointer, for the first of `most`,
// `most` / 2 and so on that it has memory for; null if it has for none.
// Errors: what `make` returns, but for kResourceExhausted, which has it try
// half as much, and kInvalidArgument, which says that the size is too small.
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
