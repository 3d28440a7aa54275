// Attention over given keys, as of encoders and across to them, and with biases
// by distance, against the twin.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention/attention.h"
#include "tests/kernels/each_target.h"

namespace espalier {
namespace {

using GivenKeysTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, GivenKeysTest, EachTarget(), TargetTestName);

constexpr int kGivenHeads = 6, kGivenKvHeads = 2, kGivenDim = 20;

std::vector<float> NormalNumbers(size_t count, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

// A sequence's keys and values in one page for all positions, or in pages of
// `page_size`, in falling order.
struct GivenCase {
  int num_positions = 0;
  int page_size = 0;
  std::vector<float> keys, values;  // [num_positions, kv heads, dim], by pages
  std::vector<PageId> pages;
  KvLayer layer = {};

  GivenCase(int positions, int size) : num_positions(positions) {
    page_size = size;
    const int num_pages = (positions + size - 1) / size;
    const size_t slot = kGivenKvHeads * kGivenDim;
    const auto k = NormalNumbers(positions * slot, 1);
    const auto v = NormalNumbers(positions * slot, 2);
    keys.assign(num_pages * size * slot, NAN);
    values = keys;
    for (int i = num_pages; i > 0; --i) pages.push_back(PageId{i - 1});
    layer = {keys, values, size, kGivenKvHeads, kGivenDim};
    const PagedRow row = {.num_tokens = positions, .pages = pages};
    StoreKeyValues(std::span(&row, 1), k.data(), v.data(),
                   static_cast<int>(slot), layer);
  }

  // Returns the values of a head at positions [0, end).
  std::vector<float> Head(const std::vector<float>& x, int head,
                          int end) const {
    std::vector<float> result;
    for (int p = 0; p < end; ++p) {
      const int page = pages[p / page_size].value;
      const auto slot =
          x.begin() +
          ((page * page_size + p % page_size) * kGivenKvHeads + head) *
              kGivenDim;
      result.insert(result.end(), slot, slot + kGivenDim);
    }
    return result;
  }
};

// Outputs of queries at positions [first, first + count).
void ExpectGivenTwin(GivenCase& given, int first, int count, int num_keys,
                     const AttentionOptions& options) {
  const int q_size = kGivenHeads * kGivenDim;
  const std::vector<float> q = NormalNumbers(count * q_size, 3);
  std::vector<float> out(count * q_size, NAN);
  const auto pool = ThreadPool::Create(2).value();
  const PagedRow row = {.num_tokens = count,
                        .first_position = first,
                        .pages = given.pages,
                        .num_keys = num_keys};
  Attention(std::span(&row, 1), q.data(), q_size, kGivenHeads, given.layer, out,
            *pool, options);
  for (int t = 0; t < count; ++t) {
    const int end = num_keys > 0 ? num_keys : first + t + 1;
    for (int h = 0; h < kGivenHeads; ++h) {
      const int kv_head = h / (kGivenHeads / kGivenKvHeads);
      AttentionOptions of_head = options;
      if (options.biases != nullptr) {
        of_head.biases += h * (2 * options.max_distance + 1);
      }
      const auto expected = reference::Attention(
          std::span(q).subspan(t * q_size + h * kGivenDim, kGivenDim),
          given.Head(given.keys, kv_head, end),
          given.Head(given.values, kv_head, end), of_head, first + t);
      for (int i = 0; i < kGivenDim; ++i) {
        ASSERT_NEAR(out[t * q_size + h * kGivenDim + i], expected[i], 1e-4)
            << "token " << t << ", head " << h;
      }
    }
  }
}

TEST_P(GivenKeysTest, EachTokenSeesThemWhateverItsPosition) {
  for (const int page_size : {1, 7, 200}) {
    for (const int num_keys : {1, 5, 64, 65, 150}) {
      GivenCase given(150, page_size);
      ExpectGivenTwin(given, 0, 9, num_keys, {});
      ExpectGivenTwin(given, 140, 3, num_keys, {});
    }
  }
}

TEST_P(GivenKeysTest, BiasesAreThoseOfTheHeadAndTheDistance) {
  for (const int max_distance : {1, 6, 300}) {
    const std::vector<float> biases =
        NormalNumbers(kGivenHeads * (2 * max_distance + 1), 4);
    const AttentionOptions options = {
        .scale = 0.3f, .biases = biases.data(), .max_distance = max_distance};
    GivenCase given(150, 16);
    ExpectGivenTwin(given, 0, 150, 150, options);  // an encoder's
    ExpectGivenTwin(given, 0, 150, 0, options);    // a decoder's
  }
}

}  // namespace
}  // namespace espalier
