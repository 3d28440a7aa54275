#include "tests/fuzz/corpus.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "base/file.h"
#include "base/status.h"
#include "tests/source_tree.h"

namespace espalier::fuzz {

namespace {

constexpr size_t kMaxArchiveBytes = 64 << 20;

// POSIX.1-2017, pax, "ustar Interchange Format": a block of header for each
// file, then its bytes, filled up to whole blocks; a block of zeros ends all.
constexpr size_t kBlockBytes = 512;
constexpr size_t kNameBytes = 100;
constexpr size_t kSizeOffset = 124;
constexpr size_t kSizeBytes = 12;
constexpr size_t kTypeOffset = 156;
constexpr char kPlainFile = '0';

std::string_view UpToZero(std::string_view field) {
  return field.substr(0, field.find('\0'));
}

}  // namespace

absl::StatusOr<std::vector<CorpusInput>> ReadCorpus(std::string_view target) {
  const std::string path =
      SourcePath(Concat("tests/fuzz/corpus/", target, ".tar"));
  ASSIGN_OR_RETURN(const std::string archive, ReadFile(path, kMaxArchiveBytes));
  std::string_view rest = archive;
  std::vector<CorpusInput> inputs;
  while (rest.size() >= kBlockBytes && rest.front() != '\0') {
    const std::string_view header = rest.substr(0, kBlockBytes);
    const std::string_view octal =
        UpToZero(header.substr(kSizeOffset, kSizeBytes));
    size_t size = 0;
    const auto parsed =
        std::from_chars(octal.data(), octal.data() + octal.size(), size, 8);
    if (header[kTypeOffset] != kPlainFile || parsed.ec != std::errc() ||
        size > rest.size() - kBlockBytes) {
      return InvalidArgument(path, ": no plain file at byte ",
                             archive.size() - rest.size());
    }
    inputs.push_back({std::string(UpToZero(header.substr(0, kNameBytes))),
                      std::string(rest.substr(kBlockBytes, size))});
    const size_t num_blocks = 1 + (size + kBlockBytes - 1) / kBlockBytes;
    rest.remove_prefix(std::min(rest.size(), num_blocks * kBlockBytes));
  }
  std::sort(inputs.begin(), inputs.end(),
            [](const CorpusInput& a, const CorpusInput& b) {
              return a.name < b.name;
            });
  return inputs;
}

}  // namespace espalier::fuzz
