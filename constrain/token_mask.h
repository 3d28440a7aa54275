// TokenMask: a set of tokens of a vocabulary: a list while they are few, else
// a bit for each token of the vocabulary.
//
// Thread safety: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace espalier {

class TokenMask {
 public:
  static constexpr size_t kMaxFew = 256;

  explicit TokenMask(int vocab_size) : vocab_size_(vocab_size) {}

  // REQUIRES: `token` is not in the set.
  void Add(TokenId token) {
    if (words_.empty()) {
      if (few_.size() < kMaxFew) return few_.push_back(token);
      UseWords();
    }
    SetBit(token, words_);
  }
  // Adds the tokens of the bits of `words`, [NumWords(vocab_size)].
  void AddWords(std::span<const uint64_t> words);

  // Makes bits of more than kMaxFew tokens and a sorted list of others, so that
  // equal sets are kept alike.
  void Normalize();
  // REQUIRES of these: after Normalize().
  bool has_words() const { return !words_.empty(); }
  const std::vector<TokenId>& few() const { return few_; }
  const std::vector<uint64_t>& words() const { return words_; }
  int64_t num_tokens() const { return num_tokens_; }
  // Returns the tokens, ascending.
  std::vector<TokenId> ToList() const;

  static size_t NumWords(int vocab_size) {
    return (static_cast<size_t>(vocab_size) + 63) / 64;
  }
  static void SetBit(TokenId token, std::span<uint64_t> words) {
    words[token / 64] |= uint64_t{1} << (token % 64);
  }
  static void ClearBit(TokenId token, std::span<uint64_t> words) {
    words[token / 64] &= ~(uint64_t{1} << (token % 64));
  }

 private:
  void UseWords();

  int vocab_size_;
  std::vector<TokenId> few_;     // unless there are words
  std::vector<uint64_t> words_;  // empty, or [NumWords(vocab_size)]
  int64_t num_tokens_ = 0;       // after Normalize()
};

}  // namespace espalier
