// Files of CTranslate2: refused by their name, or their variables lie in the
// data.
#include <string>

#include "base/check.h"
#include "base/status.h"
#include "model/ctranslate2/ctranslate2_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

FUZZ_TARGET(ctranslate2, input) {
  const MemoryFile memory(input);
  const auto file = CTranslate2File::Open(memory.path());
  if (!file.ok()) {
    CheckBadInput(file.status());
    CHECK(Message(file.status()).starts_with(memory.path()))
        << file.status().ToString();
    return;
  }
  unsigned sum = 0;
  size_t num_bytes = 0;
  for (const auto& [name, variable] : file->variables()) {
    CHECK(file->Find(name) == &variable);
    num_bytes += variable.data.size();
    for (const std::byte byte : variable.data) {
      sum += static_cast<unsigned>(byte);
    }
  }
  CHECK(num_bytes + 16 <= input.size() && sum <= 255 * num_bytes);
  for (const auto& [alias, name] : file->aliases()) {
    CHECK(file->Find(alias) == file->Find(name) && file->Find(name) != nullptr);
  }
}

}  // namespace

}  // namespace espalier::fuzz
