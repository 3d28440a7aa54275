#include "kernels/gumbel_topk/noise_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gumbel_topk/noise_block.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logits/vector_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void WriteNoiseWords(TokenId first, int size, const RandomKey& key,
                     uint32_t* words) {
  for (int i = 0; i < size; i += 2) {
    const RandomWords random =
        WordsAt(key, static_cast<uint32_t>(first + i) / 2);
    words[i] = random.words[0];
    words[i + 1] = random.words[2];
  }
}

#else

using Words = hn::Repartition<uint64_t, Floats>;
using WordVec = hn::Vec<Words>;

// Returns the product of the low halves. The high halves of the result are
// unspecified.
HWY_INLINE WordVec Product(WordVec a, uint32_t b) {
  const hn::Repartition<uint32_t, Words> halves;
  return hn::MulEven(hn::BitCast(halves, a), hn::Set(halves, b));
}

// Philox's key in each round; as wide as a lane, to be read into all of them.
struct RoundKeys {
  static constexpr int kRounds = 10;
  uint64_t key0[kRounds], key1[kRounds];

  explicit RoundKeys(uint64_t seed) {
    uint32_t next0 = static_cast<uint32_t>(seed);
    uint32_t next1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kRounds; ++round) {
      key0[round] = next0;
      key1[round] = next1;
      next0 += 0x9E3779B9u;
      next1 += 0xBB67AE85u;
    }
  }
};

// Returns the words of one vector of tokens from `first` on: Philox (random.h)
// with a counter in the low half of each lane.
HWY_INLINE hn::Vec<hn::Repartition<uint32_t, Words> > FirstWords(
    TokenId first, const RandomKey& key, const RoundKeys& round_keys) {
  const Words d;
  WordVec c0 = hn::Iota(d, static_cast<uint64_t>(first) / 2);
  WordVec c1 = hn::Set(d, key.position), c2 = hn::Set(d, key.sample);
  WordVec c3 = hn::Set(d, static_cast<uint64_t>(key.purpose));
  for (int round = 0; round < RoundKeys::kRounds; ++round) {
    const WordVec a = Product(c0, 0xD2511F53u);
    const WordVec b = Product(c2, 0xCD9E8D57u);
    const WordVec high_a = hn::ShiftRight<32>(a);
    const WordVec high_b = hn::ShiftRight<32>(b);
    c0 = hn::Xor(hn::Xor(high_b, c1), hn::Set(d, round_keys.key0[round]));
    c2 = hn::Xor(hn::Xor(high_a, c3), hn::Set(d, round_keys.key1[round]));
    c1 = b;
    c3 = a;
  }
  const WordVec low = hn::And(c0, hn::Set(d, 0xFFFFFFFFu));
  return hn::BitCast(hn::Repartition<uint32_t, Words>(),
                     hn::Or(low, hn::ShiftLeft<32>(c2)));
}

void WriteNoiseWords(TokenId first, int size, const RandomKey& key,
                     uint32_t* HWY_RESTRICT words) {
  const hn::Repartition<uint32_t, Words> d;
  const RoundKeys round_keys(key.seed);
  for (int i = 0; i < size; i += static_cast<int>(hn::Lanes(d))) {
    hn::StoreU(FirstWords(first + i, key, round_keys), d, words + i);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// Noise above g is a uniform number u with -log(u) < exp(-g), and -log(u) >=
// 1 - u >= (2^32 - 1 - word) / 2^32.
uint64_t MayExceed(const float* HWY_RESTRICT scores,
                   const uint32_t* HWY_RESTRICT words,
                   const NoiseThreshold& threshold) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  const hn::RebindToSigned<Floats> di;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const double shift = threshold.value_of_max - threshold.threshold;
  if (!(shift < 1e30)) return ~uint64_t{0};
  // Bounds the rounding errors of float32 near the threshold.
  const double slack =
      1e-4 + 1e-6 * (std::abs(shift) + std::abs(threshold.value_of_max));
  const Vec offset = hn::Set(d, static_cast<float>(shift + slack));
  const Vec factor = hn::Set(
      d, static_cast<float>(std::min(1.0 / threshold.temperature, 1e30)));
  const Vec max = hn::Set(d, threshold.max), zero = hn::Zero(d);
  uint64_t mask = 0;
  for (int i = 0; i < kChunkSize; i += lanes) {
    const Vec z = hn::Mul(hn::Sub(hn::LoadU(d, scores + i), max), factor);
    const Vec most = Exp(d, hn::Min(hn::Add(z, offset), zero));
    const auto complement = hn::Not(hn::LoadU(du, words + i));
    // The upper 24 bits, rounded down, are exact in float32.
    const auto bits = hn::BitCast(di, hn::ShiftRight<8>(complement));
    const Vec least = hn::Mul(hn::ConvertTo(d, bits), hn::Set(d, 0x1p-24f));
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, hn::Le(least, most), bytes);
    uint64_t found;
    std::memcpy(&found, bytes, sizeof found);
    mask |= found << i;
  }
  return mask;
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(WriteNoiseWords);
HWY_EXPORT(MayExceed);

void WriteNoiseWords(TokenId first, int size, const RandomKey& key,
                     uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(WriteNoiseWords)(first, size, key, words);
}

uint64_t MayExceed(const float* scores, const uint32_t* words,
                   const NoiseThreshold& threshold) {
  return HWY_DYNAMIC_DISPATCH(MayExceed)(scores, words, threshold);
}

}  // namespace espalier
#endif  // HWY_ONCE
