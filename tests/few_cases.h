// Few cases instead of many. Under a sanitizer a test takes ten to a hundred
// times as long, and there it needs no more cases than reach all of the code.
// So where the environment has ESPALIER_FEW_CASES=1, tests that go through many
// cases leave most of them out; otherwise nothing is left out. CTest sets it in
// builds with a sanitizer, and tools/sanitize_gpu.sh does.
#pragma once

#include <cstdlib>
#include <string_view>

namespace espalier::testing {

inline bool FewCases() {
  const char* const value = std::getenv("ESPALIER_FEW_CASES");
  return value != nullptr && std::string_view(value) == "1";
}

// Returns `few` if the test is to run few cases: their number, size or list.
template <typename T>
T Cases(T all, T few) {
  return FewCases() ? few : all;
}

}  // namespace espalier::testing
