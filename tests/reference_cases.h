// Which lines of tests/data/beam_search.jsonl a test goes through.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/few_cases.h"

namespace espalier::testing {

// All of them; or, where cases are few, those with an option, or a value of
// one, that no line before has: together they have every value of every option,
// and a list of every option that is one.
inline std::vector<json::value> ReferenceCases(std::vector<json::value> lines) {
  if (!FewCases()) return lines;
  std::set<std::string> seen;
  std::vector<json::value> few;
  for (json::value& line : lines) {
    bool is_new = false;
    for (const auto& [name, value] : line.at("params").as_object()) {
      const std::string which = value.is_array() ? "" : WriteJson(value);
      is_new |= seen.insert(std::string(name) + which).second;
    }
    if (is_new) few.push_back(std::move(line));
  }
  return few;
}

}  // namespace espalier::testing
