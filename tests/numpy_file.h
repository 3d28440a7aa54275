// Files of NumPy for tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace espalier::testing {

// Returns a file as numpy.save writes it.
template <typename T>
std::string NumpyFile(const std::string& descr, const std::string& shape,
                      const std::vector<T>& numbers,
                      const std::string& order = "False", int version = 1) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order +
                       ", 'shape': " + shape + ", }";
  const size_t before = version == 1 ? 10 : 12;
  while ((before + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (size_t i = 0; i < (version == 1 ? 2 : 4); ++i) {
    file += static_cast<char>(header.size() >> (8 * i));
  }
  file += header;
  for (const T number : numbers) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &number, sizeof(T));
    file.append(bytes, sizeof(T));
  }
  return file;
}

}  // namespace espalier::testing
