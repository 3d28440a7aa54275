#include "benchmarks/executor/cuda/random_tokenizer.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

// Returns the character that a byte-level vocabulary writes a byte as.
std::string SpellingOf(int byte) {
  const auto is_printed = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  int code = byte;
  if (!is_printed(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += is_printed(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3F))};
}

json::object Vocabulary(int vocab_size) {
  json::object vocab;
  int size = 0;
  for (; size < 256; ++size) vocab[SpellingOf(size)] = size;
  std::mt19937 random(1);
  while (size < vocab_size) {
    const bool is_number = random() % 20 == 0;
    const int length = is_number ? 1 + random() % 3 : 2 + random() % 10;
    std::string word;
    for (int i = 0; i < length; ++i) {
      word += static_cast<char>(is_number ? '0' + random() % 10
                                          : 'a' + random() % 26);
    }
    // Few numbers differ.
    if (vocab.contains(word)) word += SpellingOf('a' + random() % 26);
    if (vocab.emplace(word, size).second) ++size;
  }
  return vocab;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> RandomTokenizer(
    int vocab_size) {
  const json::object byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", true},
                                   {"use_regex", true}};
  const json::object file = {{"model",
                              {{"type", "BPE"},
                               {"vocab", Vocabulary(vocab_size)},
                               {"merges", json::array()}}},
                             {"pre_tokenizer", byte_level},
                             {"decoder", byte_level}};
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() /
      Concat("random_tokenizer_", std::random_device()());
  std::filesystem::create_directory(directory);
  const std::string path = directory / "tokenizer.json";
  std::ofstream(path) << WriteJson(file);
  auto tokenizer = Tokenizer::Load(path);
  std::filesystem::remove_all(directory);
  if (!tokenizer.ok()) return tokenizer.status();
  return std::shared_ptr<const Tokenizer>(*std::move(tokenizer));
}

}  // namespace espalier
