// SubwordModel: encodes a piece of text, as split by the pre-tokenizer, into
// token ids: BPE or Unigram.
//
// Thread safety: constant after construction; each thread brings a scratch.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace espalier {

// Memory that a model works in, kept from piece to piece.
struct SubwordScratch {
  // Parts of the piece, as a linked list [num_parts].
  std::vector<TokenId> parts;
  std::vector<int32_t> previous;
  std::vector<int32_t> next;
  std::vector<uint64_t> heap;  // merges: rank << 32 | the left part's place
  // The best path to each byte of a piece [bytes + 1].
  struct PathNode {
    double score;
    int32_t begin;  // start of the last token, or -1
    TokenId token;
  };
  std::vector<PathNode> paths;
};

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;

  // Appends the tokens of `piece`, which is not empty.
  // Errors: kInvalidArgument if no token spells a part of it, and the model
  // has no unknown token.
  virtual absl::Status Encode(std::string_view piece, SubwordScratch* scratch,
                              std::vector<TokenId>* tokens) const = 0;

  // Bytes of the first part of `piece` that no token joins with what follows:
  // the parts of a piece, encoded by themselves, are the whole piece's tokens.
  virtual size_t FirstPartSize(std::string_view piece) const {
    return piece.size();
  }

  // No piece becomes one of `tokens` from now on: one pass over the model.
  // REQUIRES: the model is not in use yet.
  virtual void MakeUnreachable(std::span<const TokenId> tokens) = 0;
};

}  // namespace espalier
