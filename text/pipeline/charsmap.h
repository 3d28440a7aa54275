// Charsmap: the normalization rules of a SentencePiece model as tokenizer.json
// carries them (normalizer "Precompiled"): a trie of spellings, a double array
// in Darts' form, and what each becomes.
//
// A grapheme cluster of at most five bytes is replaced as a whole by what its
// shortest spelling in the trie becomes; of others, and where there is none,
// each character is. That is how Hugging Face's tokenizers read it; the library
// of SentencePiece itself takes the longest spelling.
//
// Thread safety: constant after Create; any thread may then read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier {

class Charsmap {
 public:
  // `map`: the size of the trie in bytes and the trie itself, both of
  // little-endian 32-bit words, and the results, each ending in a zero byte.
  // Errors: kInvalidArgument saying what is wrong.
  static absl::StatusOr<Charsmap> Create(std::string_view map);

  // Sets `first_bytes` to the bytes that the first cluster has become. Stops
  // once there are more than `max_bytes`.
  // REQUIRES: `text` is UTF-8.
  std::string Apply(std::string_view text, size_t max_bytes,
                    size_t* first_bytes) const;

 private:
  Charsmap() = default;

  // Returns the replacement of the shortest rule that `text` begins with.
  std::optional<std::string_view> Find(std::string_view text) const;
  void AppendGrapheme(std::string_view grapheme, std::string* out) const;

  std::vector<uint32_t> units_;
  std::string results_;
};

}  // namespace espalier
