#include "constrain/token_trie.h"

#include <algorithm>
#include <bit>
#include <bitset>
#include <limits>
#include <utility>

namespace espalier {

TokenTrie::TokenTrie(std::span<const std::string> bytes) {
  // A node's depth has 16 bits; no text has a token as long.
  constexpr size_t kMaxBytes = std::numeric_limits<uint16_t>::max();
  indptr_.reserve(bytes.size() + 1);
  indptr_.push_back(0);
  for (const std::string& of_token : bytes) {
    if (of_token.size() <= kMaxBytes) text_ += of_token;
    indptr_.push_back(static_cast<int32_t>(text_.size()));
  }
  text_.shrink_to_fit();
  for (TokenId token = 0; token < vocab_size(); ++token) {
    if (!BytesOf(token).empty()) tokens_.push_back(token);
  }
  std::stable_sort(tokens_.begin(), tokens_.end(), [&](TokenId a, TokenId b) {
    return BytesOf(a) < BytesOf(b);
  });
  std::bitset<256> single;
  std::vector<uint32_t> path;  // nodes of the last token
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].subtree_end = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = BytesOf(tokens_[i]);
    if (text.size() == 1) single.set(static_cast<uint8_t>(text[0]));
    const size_t num_common =
        std::mismatch(text.begin(), text.end(), last.begin(), last.end())
            .first -
        text.begin();
    close(num_common);
    for (size_t depth = num_common; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      // Tokens that end before it come first, this one after its last byte.
      nodes_.push_back({.first_token = static_cast<uint32_t>(i),
                        .subtree_end = 0,
                        .depth = static_cast<uint16_t>(depth),
                        .byte = static_cast<uint8_t>(text[depth])});
    }
    max_depth_ = std::max(max_depth_, text.size());
    last = text;
  }
  close(0);
  has_all_bytes_ = single.all();
}

int64_t TokenTrie::num_bytes() const {
  return static_cast<int64_t>(
      text_.capacity() + indptr_.size() * sizeof(int32_t) +
      tokens_.size() * sizeof(TokenId) + nodes_.size() * sizeof(Node));
}

void SortTokens(int vocab_size, std::vector<TokenId>* tokens) {
  // Many are sorted by a bit for each of the vocabulary.
  constexpr size_t kFew = 256;
  if (tokens->size() <= kFew) return std::sort(tokens->begin(), tokens->end());
  std::vector<uint64_t> bits(static_cast<size_t>(vocab_size) / 64 + 1);
  for (const TokenId token : *tokens) {
    bits[token / 64] |= uint64_t{1} << (token % 64);
  }
  tokens->clear();
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint64_t left = bits[word]; left != 0; left &= left - 1) {
      tokens->push_back(
          static_cast<TokenId>(64 * word + std::countr_zero(left)));
    }
  }
}

}  // namespace espalier
