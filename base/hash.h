// Keyed hashes of strings and numbers, for hash tables whose keys come from
// files or callers, such as pieces of a vocabulary. Each process has a random
// hash key, because an attacker who could compute the hash could choose keys
// that all collide. Its hashes differ between processes: use them in tables,
// never in results. Results may use a fixed HashKey. Not for signatures.
//
// Cost: a 64 x 64-bit multiplication per number or eight bytes, one per string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace espalier {

struct HashKey {
  uint64_t start = 0;
  uint64_t multiplier = 1;  // odd

  static HashKey Random();
};

// The hash key of this process.
inline const HashKey kHashKey = HashKey::Random();

// Multiplies to 128 bits and folds the halves by xor.
inline uint64_t HashOf(uint64_t word, const HashKey& key = kHashKey) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(word ^ key.start) * key.multiplier;
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

// Hashes eight bytes at a time; meant for short strings.
inline uint64_t HashOf(std::string_view bytes, const HashKey& key = kHashKey) {
  uint64_t hash = bytes.size() * key.multiplier;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (;; at += sizeof(uint64_t), left -= sizeof(uint64_t)) {
    uint64_t word = 0;
    if (left > 0) {  // a default string_view has a null pointer
      std::memcpy(&word, at, left < sizeof word ? left : sizeof word);
    }
    hash = HashOf(word ^ hash, key);
    if (left <= sizeof word) return hash;
  }
}

// For std::unordered_map and similar. Lookup of std::string keys by
// std::string_view also needs std::equal_to<>.
struct KeyedHash {
  using is_transparent = void;
  size_t operator()(std::string_view bytes) const { return HashOf(bytes); }
};

}  // namespace espalier
