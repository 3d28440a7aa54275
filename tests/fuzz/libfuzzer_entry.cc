// Entry point of libFuzzer, for this program's only target.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  espalier::fuzz::FuzzTargets().front().run(
      {reinterpret_cast<const char*>(data), size});
  return 0;
}
