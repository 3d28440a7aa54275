// SmallVector: a vector whose first four elements lie in the vector itself, so
// that a small one takes no memory of its own. Most groups have one to four
// sequences: what plans and groups hold by sequence or by candidate is made
// anew for each of them at each step.
//
// It behaves as std::vector but for moving: elements that lie in it are moved
// one by one, so pointers to them do not stay valid.
#pragma once

#include "absl/container/inlined_vector.h"

namespace espalier {

template <typename T>
using SmallVector = absl::InlinedVector<T, 4>;

}  // namespace espalier
