#include "kernels/attention/attention_scores.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/check.h"

namespace espalier {
namespace {

// Partial sums of a product: enough for the vectors of any machine.
constexpr size_t kNumSums = 16;

float Dot(const float* a, const float* b, size_t size) {
  std::array<float, kNumSums> sums = {};
  size_t i = 0;
  for (; i + kNumSums <= size; i += kNumSums) {
    for (size_t j = 0; j < kNumSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (size_t j = 0; i < size; ++i, ++j) sums[j] += a[i] * b[i];
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

}  // namespace

void AttentionScores(std::span<const float> q, std::span<const PageId> pages,
                     const KvLayer& layer, int kv_head, float scale,
                     std::span<float> scores) {
  CHECK_LT(kv_head, layer.num_kv_heads);
  CHECK_GE(pages.size() * layer.page_size, scores.size());
  const auto page_size = static_cast<size_t>(layer.page_size);
  for (size_t first = 0; first < scores.size(); first += page_size) {
    const size_t count = std::min(page_size, scores.size() - first);
    const float* key =
        layer.keys.data() +
        size_t(pages[first / page_size].value) * page_size * layer.slot_size() +
        size_t(kv_head) * layer.head_dim;
    for (size_t i = 0; i < count; ++i, key += layer.slot_size()) {
      scores[first + i] = scale * Dot(q.data(), key, q.size());
    }
  }
}

}  // namespace espalier
