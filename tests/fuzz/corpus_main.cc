// Feeds every fuzz target its corpus, without a fuzzer: earlier findings stay
// fixed, with any compiler.
//
//   fuzz_corpus_test                  tests/fuzz/corpus/TARGET, all of them
//   fuzz_corpus_test TARGET FILE...   these files
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/source_tree.h"

namespace espalier::fuzz {

namespace {

constexpr size_t kMaxInputBytes = 16 << 20;

std::vector<std::string> CorpusOf(std::string_view target) {
  const std::string directory =
      SourcePath("tests/fuzz/corpus/" + std::string(target));
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// True if all files could be read. A broken law ends the program: the last line
// names the input.
bool Feed(const FuzzTarget& target, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    std::cerr << target.name << " " << path << std::endl;
    const auto input = ReadFile(path, kMaxInputBytes);
    if (!input.ok()) {
      std::cerr << input.status().ToString() << std::endl;
      return false;
    }
    target.run(*input);
  }
  return !paths.empty();
}

int Main(const std::vector<std::string>& args) {
  int num_fed = 0;
  for (const FuzzTarget& target : FuzzTargets()) {
    if (!args.empty() && args[0] != target.name) continue;
    if (!Feed(target, args.size() > 1
                          ? std::vector(args.begin() + 1, args.end())
                          : CorpusOf(target.name))) {
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
