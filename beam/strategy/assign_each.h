// AssignEach: makes a vector the values of a function, in the memory that it
// has. What a group describes at each step is as long as at the last one, as a
// rule.
#pragma once

#include <cstddef>

#include "base/small_vector.h"

namespace espalier {

// Makes `*values` value_of(0), value_of(1) and so on: `count` of them.
template <typename T, typename ValueOf>
void AssignEach(size_t count, const ValueOf& value_of, SmallVector<T>* values) {
  values->resize(count);
  T* const data = values->data();
  for (size_t i = 0; i < count; ++i) data[i] = value_of(i);
}

}  // namespace espalier
