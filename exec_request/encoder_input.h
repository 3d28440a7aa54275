// EncoderInput: what the encoder of an encoder-decoder model reads for one
// request, its *source*. The encoder attends in both directions, so the keys
// and values of cross-attention, at each position, depend on all of the input:
// it is read at once, and its pages serve equal inputs alone. The content hash
// identifies these (beam/pages/prefix_roots.h).
//
// Everything between a request and a model's encoder, which are plans, pages
// and caches, knows an input by its length and hash. Only a model reads the
// tokens.
//
// Thread safety: immutable.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace espalier {

class EncoderInput {
 public:
  // REQUIRES: tokens is not empty.
  explicit EncoderInput(std::vector<TokenId> tokens);

  std::span<const TokenId> tokens() const { return tokens_; }
  // Returns the number of positions that have keys and values: one for each
  // token.
  int length() const { return static_cast<int>(tokens_.size()); }
  // Returns the SHA-256 of the input.
  const std::string& content_hash() const { return content_hash_; }

 private:
  const std::vector<TokenId> tokens_;
  const std::string content_hash_;  // 32 bytes
};

}  // namespace espalier
