// Files of weights: refused by their name, or their tensors are the whole of
// the data.
#include "model/safetensors.h"

#include <string>

#include "base/check.h"
#include "base/status.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

FUZZ_TARGET(safetensors, input) {
  const MemoryFile memory(input);
  const auto file = SafetensorsFile::Open(memory.path());
  if (!file.ok()) {
    CheckBadInput(file.status());
    CHECK(Message(file.status()).starts_with(memory.path()))
        << file.status().ToString();
    return;
  }
  unsigned sum = 0;
  size_t num_bytes = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    CHECK((*file->Find(name))->data.data() == tensor.data.data());
    num_bytes += tensor.data.size();
    for (const std::byte byte : tensor.data) {
      sum += static_cast<unsigned>(byte);
    }
  }
  CHECK(num_bytes + 8 <= input.size() && sum <= 255 * num_bytes);
  CHECK(!file->Find("\n").ok() || file->tensors().contains("\n"));
}

}  // namespace

}  // namespace espalier::fuzz
