// Checks a SentencePiece model file before the library loads it. The library
// trusts some parts of the file: a crafted one makes it overflow its stack or
// read out of bounds (google/sentencepiece issues 1263 and 1269, pull requests
// 1265 and 1267, all open in 0.1.97). The checked parts are:
//
//  - the frame: Protocol Buffers fields that fit into each other;
//  - pieces: 1 to 4,096 bytes of UTF-8 without NUL, at most 2^21 of them, and
//    at most 64 user-defined ones that begin each other (a, ab, abc, ...);
//  - precompiled_charsmap, the trie of the normalisation rules: whatever text
//    is looked up, the look-up stays inside the trie, meets at most 32 rules,
//    and each rule's result ends inside the map.
//
// Rules for the way back (denormalizer_spec), which models in use do not
// have, are refused: with them text could not be made token by token.
//
// What is left to trust is that the library itself has no further hole; how
// long its results are (a rule may map a letter to megabytes) is not bounded.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace espalier {

// Properties of a model that the library does not expose.
struct SentencePieceFacts {
  std::vector<std::string> user_defined;
  // A run of more ASCII spaces in a text is encoded as a run of so many. Unset
  // if longer runs can matter: the model keeps extra spaces, or a rule or a
  // user-defined symbol begins with one.
  std::optional<size_t> max_spaces;
};

// Takes time in proportion to the size; the trie of the NFKC rules some ten
// milliseconds.
// Fills `facts`, if it is not null.
// Errors: kInvalidArgument saying what is wrong.
absl::Status CheckSentencePieceModel(std::string_view model,
                                     SentencePieceFacts* facts = nullptr);

}  // namespace espalier
