#include "constrain/token_mask.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace espalier {
namespace {

// The bits of each byte, ascending.
struct BitsOfBytes {
  std::array<std::array<uint8_t, 8>, 256> bits = {};
  std::array<uint8_t, 256> counts = {};
  constexpr BitsOfBytes() {
    for (size_t byte = 0; byte < 256; ++byte) {
      for (uint8_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) bits[byte][counts[byte]++] = bit;
      }
    }
  }
};
constexpr BitsOfBytes kBitsOfBytes;

int64_t CountBits(std::span<const uint64_t> words) {
  int64_t count = 0;
  for (const uint64_t word : words) count += std::popcount(word);
  return count;
}

// Eight are stored for each byte, so that no branch depends on its bits.
std::vector<TokenId> ListOf(std::span<const uint64_t> words, int64_t count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count) + 8);
  TokenId* out = tokens.data();
  for (size_t i = 0; i < words.size(); ++i) {
    auto first = static_cast<TokenId>(64 * i);
    for (uint64_t left = words[i]; left != 0; left >>= 8, first += 8) {
      const std::array<uint8_t, 8>& bits = kBitsOfBytes.bits[left & 255];
      for (size_t b = 0; b < 8; ++b) out[b] = first + bits[b];
      out += kBitsOfBytes.counts[left & 255];
    }
  }
  tokens.resize(static_cast<size_t>(count));
  return tokens;
}

}  // namespace

void TokenMask::UseWords() {
  words_.resize(NumWords(vocab_size_));
  for (const TokenId token : few_) SetBit(token, words_);
  few_.clear();
}

void TokenMask::AddWords(std::span<const uint64_t> words) {
  if (words_.empty()) UseWords();
  for (size_t i = 0; i < words.size(); ++i) words_[i] |= words[i];
}

void TokenMask::Normalize() {
  if (words_.empty()) {
    std::sort(few_.begin(), few_.end());
    num_tokens_ = std::ssize(few_);
    return;
  }
  num_tokens_ = CountBits(words_);
  if (num_tokens_ > static_cast<int64_t>(kMaxFew)) return;
  few_ = ListOf(words_, num_tokens_);
  words_.clear();
}

std::vector<TokenId> TokenMask::ToList() const {
  return words_.empty() ? few_ : ListOf(words_, num_tokens_);
}

}  // namespace espalier
