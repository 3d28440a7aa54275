// Tokenizers of Whisper's kind (tests/data/speech/), and their tokens.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "speech/whisper_tokens.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {

struct WhisperText {
  std::unique_ptr<Tokenizer> tokenizer;
  WhisperTokens tokens;
};

// With all languages.
inline WhisperText LoadWhisperText() {
  auto tokenizer =
      Tokenizer::Load(SourcePath("tests/data/speech/tokenizer/tokenizer.json"));
  EXPECT_OK(tokenizer);
  auto tokens = WhisperTokens::Find(**tokenizer, /*is_multilingual=*/true);
  EXPECT_OK(tokens);
  return {*std::move(tokenizer), *std::move(tokens)};
}

// Returns what openai's code makes of scripted windows
// (tools/make_transcript_references.py).
inline json::value TranscriptReferences() {
  return *ParseJson(
      *ReadFile(SourcePath("tests/data/speech/transcripts.json"), 1 << 20));
}

template <typename T>
std::vector<T> NumbersOf(const json::value& list) {
  std::vector<T> numbers;
  for (const json::value& number : list.as_array()) {
    numbers.push_back(number.to_number<T>());
  }
  return numbers;
}

}  // namespace espalier::testing
