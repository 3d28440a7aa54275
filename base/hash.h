// Keyed hashes of strings and numbers, for hash tables whose keys come from
// files or callers: the pieces of a vocabulary, or the fields of a JSON body.
// Whoever could compute the hash could choose keys that all share one bucket,
// so each process draws a key at random. It changes where entries lie in
// tables, and no result. Not for signatures or checksums.
//
// Cost: one 64 x 64-bit multiplication for each eight bytes.
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

// Of this process.
inline const HashKey kHashKey = HashKey::Random();

// Multiply and fold.
inline uint64_t HashOf(uint64_t word, const HashKey& key = kHashKey) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(word ^ key.start) * key.multiplier;
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

// Of few bytes: eight at a time.
inline uint64_t HashOf(std::string_view bytes, const HashKey& key = kHashKey) {
  uint64_t hash = bytes.size() * key.multiplier;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (;; at += sizeof(uint64_t), left -= sizeof(uint64_t)) {
    uint64_t word = 0;
    if (left > 0) {  // a default string_view is of nowhere
      std::memcpy(&word, at, left < sizeof word ? left : sizeof word);
    }
    hash = HashOf(word ^ hash, key);
    if (left <= sizeof word) return hash;
  }
}

// For std::unordered_map and its like, also to look for a std::string by what
// views it.
struct KeyedHash {
  using is_transparent = void;
  size_t operator()(std::string_view bytes) const { return HashOf(bytes); }
};

}  // namespace espalier
