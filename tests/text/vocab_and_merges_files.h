// vocab.json and merges.txt of a tokenizer.json.
#pragma once

#include <string>

#include "base/file.h"
#include "base/json.h"
#include "tests/scratch_directory.h"

namespace espalier::testing {

// Writes them to `directory`, as they are published: with the added tokens
// among the others, and the comment that merges.txt begins with.
inline void WriteVocabAndMerges(const std::string& tokenizer_json,
                                const ScratchDirectory& directory) {
  const std::string text = ReadFile(tokenizer_json, size_t{1} << 24).value();
  const json::value file = ParseJson(text).value();
  json::object vocab = file.at("model").at("vocab").as_object();
  for (const json::value& token : file.at("added_tokens").as_array()) {
    vocab[token.at("content").as_string()] = token.at("id");
  }
  directory.Write("vocab.json", WriteJson(vocab));
  std::string merges = "#version: 0.2\n";
  for (const json::value& merge : file.at("model").at("merges").as_array()) {
    const auto side = [&](int i) {
      return std::string(merge.at(i).as_string());
    };
    merges += side(0) + " " + side(1) + "\n";
  }
  directory.Write("merges.txt", merges);
}

}  // namespace espalier::testing
