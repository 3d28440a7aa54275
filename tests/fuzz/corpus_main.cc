// Feeds every fuzz target its corpus, without a fuzzer: earlier findings stay
// fixed, with any compiler.
//
//   fuzz_corpus_test                  tests/fuzz/corpus/TARGET.tar, all of them
//   fuzz_corpus_test TARGET FILE...   these files
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/status.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

constexpr size_t kMaxInputBytes = 16 << 20;

absl::StatusOr<std::vector<CorpusInput>> ReadInputs(
    const std::vector<std::string>& paths) {
  std::vector<CorpusInput> inputs;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxInputBytes));
    inputs.push_back({path, std::move(bytes)});
  }
  return inputs;
}

// True if there are inputs and all could be read. A broken law ends the
// program: the last line names the input.
bool Feed(const FuzzTarget& target,
          const absl::StatusOr<std::vector<CorpusInput>>& inputs) {
  if (!inputs.ok()) {
    std::cerr << inputs.status().ToString() << std::endl;
    return false;
  }
  for (const CorpusInput& input : *inputs) {
    std::cerr << target.name << " " << input.name << std::endl;
    target.run(input.bytes);
  }
  return !inputs->empty();
}

int Main(const std::vector<std::string>& args) {
  int num_fed = 0;
  for (const FuzzTarget& target : FuzzTargets()) {
    if (!args.empty() && args[0] != target.name) continue;
    if (!Feed(target, args.size() > 1
                          ? ReadInputs({args.begin() + 1, args.end()})
                          : ReadCorpus(target.name))) {
      return 1;
    }
    ++num_fed;
  }
  if (num_fed == 0) std::cerr << "there is no target " << args[0] << std::endl;
  return num_fed == 0;
}

}  // namespace

}  // namespace espalier::fuzz

int main(int argc, char** argv) {
  return espalier::fuzz::Main({argv + 1, argv + argc});
}
