#include "kernels/logits/row_scan.h"

#include <algorithm>
#include <bit>

#include "kernels/float_limits.h"
#include "kernels/logits/row_block.h"

namespace espalier {

RowBlock ReadRowBlock(std::span<const float> row, int begin, float* copy) {
  const int left = static_cast<int>(row.size()) - begin;
  const float* values = row.data() + begin;
  if (left >= kRowBlockSize) {
    const BlockMax max = MaxOfBlock(values, kRowBlockSize);
    if (!max.maybe_nan) return {values, kRowBlockSize, max.max};
  }
  const int count = std::min(left, kRowBlockSize);
  const int size = (count + kChunkSize - 1) / kChunkSize * kChunkSize;
  std::transform(values, values + count, copy, NanAsMinusInf);
  std::fill(copy + count, copy + size, -kInf);
  return {copy, size, MaxOfBlock(copy, size).max};
}

void AddBest(const RowBlock& block, TokenId first_token, BestTokens& best) {
  for (int begin = 0; begin < block.size; begin += kChunkSize) {
    ChunkMask found =
        FirstAbove(block.values, begin, block.size, best.threshold());
    begin = found.begin;
    for (; found.mask != 0; found.mask &= found.mask - 1) {
      const int i = begin + std::countr_zero(found.mask);
      best.Add(block.values[i], first_token + i);
    }
  }
}

}  // namespace espalier
