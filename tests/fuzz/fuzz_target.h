// Fuzz targets: functions that are called with any bytes, and that CHECK what
// holds for all of them (docs/fuzzing.md has the list). Each is a file here:
//
//   FUZZ_TARGET(request_line, input) {
//     const RequestLine line = ParseRequestLine(input);
//     if (!line.body.ok()) CheckBadInput(line.body.status());
//   }
//
// One of them and libfuzzer_entry.cc make a program for libFuzzer; all of them
// and corpus_main.cc the test that feeds them their corpora.
//
// What a target does depends on its input alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace espalier::fuzz {

struct FuzzTarget {
  std::string_view name;  // its source, corpus and dictionary
  void (*run)(std::string_view input);
};

// All of this program.
std::vector<FuzzTarget>& FuzzTargets();
bool AddFuzzTarget(std::string_view name, void (*run)(std::string_view));

#define FUZZ_TARGET(name, input)                           \
  static void Fuzz_##name(std::string_view input);         \
  [[maybe_unused]] static const bool is_added_##name =     \
      ::espalier::fuzz::AddFuzzTarget(#name, Fuzz_##name); \
  static void Fuzz_##name(std::string_view input)

// Checks that an error helps the input's author: kInvalidArgument with a
// message that is printable text.
void CheckBadInput(const absl::Status& status);

// The first byte of an input, which chooses between ways to feed the rest: '0'
// is 0, and so on; 0 of an empty input.
size_t TakeChoice(std::string_view* input);

// A file with these bytes that is on no disk, for what reads files. Errors show
// its path, which is the same for all inputs.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

}  // namespace espalier::fuzz
