// Writes model.bin of CTranslate2, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/ctranslate2/ctranslate2_file.h"

namespace espalier::testing {

// A string with its length and the zero at its end.
std::string CTranslate2String(std::string_view text);

// `value` in little-endian order.
template <typename T>
std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

struct CTranslate2Variable {
  std::string name;
  std::vector<uint32_t> shape;
  uint8_t type = 0;  // 0: F32, 1: I8, 2: I16, 3: I32, 4: F16, 5: BF16
  std::string bytes;
};

struct CTranslate2Content {
  static CTranslate2Content Of(const CTranslate2File& file);

  CTranslate2Variable& At(std::string_view name);
  void Erase(std::string_view name);
  std::string Bytes() const;

  uint32_t version = 6;
  std::string specification = "TransformerSpec";
  uint32_t revision = 7;
  std::vector<CTranslate2Variable> variables;
  std::vector<std::pair<std::string, std::string>> aliases;
};

}  // namespace espalier::testing
