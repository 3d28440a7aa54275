// AssignEach: overwrites a vector with the values of a function, reusing its
// memory. A group's description usually has the same length at each step.
#pragma once

#include <cstddef>

#include "base/small_vector.h"

namespace espalier {

// Sets `*values` to value_of(0), ..., value_of(count - 1).
template <typename T, typename ValueOf>
void AssignEach(size_t count, const ValueOf& value_of, SmallVector<T>* values) {
  values->resize(count);
  T* const data = values->data();
  for (size_t i = 0; i < count; ++i) data[i] = value_of(i);
}

}  // namespace espalier
