// Formats counts and lists in English.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace espalier {

// Returns "1 request", "3 requests" or "0 copies". `many` is the plural if it
// is not `one` with an s.
inline std::string Pluralize(int64_t number, std::string_view one,
                             std::string_view many = "") {
  if (number == 1) return Concat("1 ", one);
  return many.empty() ? Concat(number, " ", one, "s")
                      : Concat(number, " ", many);
}

// Returns "a", "a and b" or "a, b and c".
inline std::string JoinWithAnd(std::span<const std::string> words) {
  std::string list;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? " and " : ", ";
    list += words[i];
  }
  return list;
}

}  // namespace espalier
