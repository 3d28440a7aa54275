// The tables behind unicode.h, ascending by their first code point.
#pragma once

#include <cstdint>
#include <span>

namespace espalier::jinja {

// The code points first, first + stride, ... last become `delta` more.
struct CaseRange {
  uint32_t first;
  uint32_t last;
  uint32_t stride;
  int32_t delta;
};
// A character that becomes several.
struct CaseExpansion {
  uint32_t code_point;
  const char* text;  // UTF-8
};
struct CodePointRange {
  uint32_t first;
  uint32_t last;
};

std::span<const CaseRange> UpperRanges();
std::span<const CaseRange> LowerRanges();
std::span<const CaseExpansion> UpperExpansions();
std::span<const CodePointRange> UnprintableRanges();

}  // namespace espalier::jinja
