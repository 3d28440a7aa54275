// Strings with equal std::hash, for tests of tables that hold strings of
// untrusted clients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace espalier::testing {

// `count` strings of 16 characters of ASCII that libstdc++ gives one hash; of
// another library's none.
inline std::vector<std::string> StringsOfOneStdHash(int count) {
  // Murmur's 64-bit form: each word is mixed, and added to the hash so far.
  constexpr uint64_t kMul = 0xC6A4A7935BD1E995, kSeed = 0xC70F6907;
  uint64_t inverse = kMul;  // modulo 2^64, by Newton's iteration
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMul * inverse;
  const auto shift_mix = [](uint64_t x) { return x ^ x >> 47; };
  const auto mix = [&](uint64_t x) { return shift_mix(x * kMul) * kMul; };
  const auto unmix = [&](uint64_t x) {
    return shift_mix(x * inverse) * inverse;
  };
  constexpr uint64_t kBeyondAscii = 0x8080808080808080;
  std::vector<std::string> strings;
  for (uint64_t i = 0; std::ssize(strings) < count; ++i) {
    uint64_t words[2] = {};
    words[0] = 0x2020202020202020 | (i & 0x1F) | (i >> 5 & 0x1F) << 8 |
               (i >> 10 & 0x1F) << 16 | (i >> 15 & 0x1F) << 24 |
               (i >> 20 & 0x1F) << 32 | (i >> 25 & 0x1F) << 40;
    const uint64_t hash = ((kSeed ^ 16 * kMul) ^ mix(words[0])) * kMul;
    words[1] = unmix(hash ^ 0x1234567);
    if ((words[1] & kBeyondAscii) != 0) continue;
    std::string text(sizeof words, '\0');
    std::memcpy(text.data(), words, sizeof words);
    strings.push_back(std::move(text));
  }
  const std::hash<std::string> hash;
  const bool is_one_hash = std::ranges::all_of(strings, [&](const auto& text) {
    return hash(text) == hash(strings.front());
  });
  if (!is_one_hash) strings.clear();
  return strings;
}

}  // namespace espalier::testing
