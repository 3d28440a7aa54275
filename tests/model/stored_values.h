// The numbers of a tensor in a file of a test.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "model/safetensors.h"

namespace espalier::testing {

// REQUIRES: there is such a tensor, of T.
template <typename T>
std::vector<T> StoredValues(const SafetensorsFile& file,
                            const std::string& name) {
  const StoredTensor* const tensor = *file.Find(name);
  std::vector<T> values(tensor->data.size() / sizeof(T));
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  return values;
}

}  // namespace espalier::testing
