// main() of the tests that need a device. Without one it returns 77, which
// ctest reports as skipped.
#include <gmock/gmock.h>

#include <cstdio>

#include "base/cuda.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const auto device = espalier::CudaDevice::Open(0);
  if (!device.ok()) {
    std::fprintf(stderr, "=== SKIPPED, NOTHING WAS TESTED: %s\n",
                 espalier::Message(device.status()).c_str());
    return 77;
  }
  std::fprintf(stderr, "on %s, %d multiprocessors\n", device->name.c_str(),
               device->num_sms);
  return RUN_ALL_TESTS();
}
