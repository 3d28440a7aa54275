// Corpora of fuzz targets: tests/fuzz/corpus/TARGET.tar has the inputs that
// every run of TARGET begins with. They are ustar archives of plain files,
// uncompressed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier::fuzz {

struct CorpusInput {
  std::string name;
  std::string bytes;
};

// The inputs of `target`, sorted by name.
// Errors, naming the archive: kInvalidArgument if it has anything but plain
// files; as ReadFile.
absl::StatusOr<std::vector<CorpusInput>> ReadCorpus(std::string_view target);

}  // namespace espalier::fuzz
