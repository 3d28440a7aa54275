// EncoderInput: what the encoder of an encoder-decoder model reads for one
// request, its *source*. The encoder attends in both directions, so the keys
// and values of cross-attention, at each position, depend on all of the input:
// it is read at once, and its pages serve equal inputs alone. The content hash
// identifies these (beam/pages/prefix_roots.h).
//
// It is tokens, or features such as the frames of speech, which a model's
// encoder may have more of than positions. Everything between a request and a
// model's encoder, which are plans, pages and caches, knows an input by its
// length and hash. Only a model reads what is in it.
//
// Thread safety: immutable.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/feature_matrix.h"
#include "base/ids.h"

namespace espalier {

class EncoderInput {
 public:
  // REQUIRES: tokens is not empty.
  explicit EncoderInput(std::vector<TokenId> tokens);
  // `length` positions of the encoder's output.
  // REQUIRES: features is not null, and has its shape's values; length >= 1.
  EncoderInput(std::shared_ptr<const FeatureMatrix> features, int length);

  // Empty if it is features.
  std::span<const TokenId> tokens() const { return tokens_; }
  // Null if it is tokens.
  const FeatureMatrix* features() const { return features_.get(); }
  // Returns the number of positions that have keys and values: one for each
  // token.
  int length() const { return length_; }
  // Returns the SHA-256 of the input.
  const std::string& content_hash() const { return content_hash_; }

 private:
  const std::vector<TokenId> tokens_;
  const std::shared_ptr<const FeatureMatrix> features_;
  const int length_;
  const std::string content_hash_;  // 32 bytes
};

}  // namespace espalier
