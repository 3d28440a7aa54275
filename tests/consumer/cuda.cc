// Loads a model to the first GPU, or reports that no GPU exists, with the
// installed headers alone.
#include <espalier/cuda.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "no_macros.h"

namespace {

absl::Status Run(const std::string& directory) {
  const auto device = espalier::CudaDevice::Open(0);
  if (absl::IsFailedPrecondition(device.status())) {
    std::cout << device.status() << '\n';
    return absl::OkStatus();
  }
  if (!device.ok()) return device.status();
  auto model = espalier::CudaTransformer::Load(
      directory, {.kv_cache_bytes = 64 << 20}, *device);
  if (!model.ok()) return model.status();
  const auto steps = espalier::CudaExecutor::Create(*std::move(model));
  if (!steps.ok()) return steps.status();
  std::printf("%s: a vocabulary of %d\n", device->name.c_str(),
              (*steps)->description().vocab_size);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 ? argv[1] : "models/en-fr");
  if (status.ok()) return 0;
  std::cerr << status << '\n';
  return 1;
}
