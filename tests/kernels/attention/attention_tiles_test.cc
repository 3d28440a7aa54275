// Tiles change no bits: queries attended to together, in tiles of any size,
// against each alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/attention/attention.h"
#include "tests/few_cases.h"
#include "tests/kernels/each_target.h"

namespace espalier {
namespace {

using AttentionTilesTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, AttentionTilesTest, EachTarget(),
                         TargetTestName);

std::vector<float> TileNumbers(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

// Random rows over one cache: chunks of sequences, and rows that read the keys
// of a source, of which several may be one.
struct TileCase {
  explicit TileCase(int seed) : random(seed) {
    const int sizes[] = {1, 2, 3, 8};
    num_kv_heads = 1 + Below(2);
    // More heads than a tile has share a key/value head in some cases.
    num_heads = num_kv_heads * (Below(8) == 0 ? 130 : sizes[Below(4)]);
    head_dim = 1 + Below(70);
    page_size = 1 + Below(40);
    if (Below(3) == 0) options.window = 1 + Below(90);
    if (Below(3) == 0) options.soft_cap = 3;
    if (Below(3) == 0) {
      options.max_distance = 1 + Below(80);
      biases = TileNumbers(size_t(num_heads) * (2 * options.max_distance + 1),
                           random);
      options.biases = biases.data();
    }
    while (std::ssize(rows) < 6) AddRows();
    const size_t size = size_t(num_pages) * page_size * num_kv_heads * head_dim;
    keys = TileNumbers(size, random);
    values = TileNumbers(size, random);
    for (int i = 0; i < 3; ++i) {
      keys[Below(static_cast<int>(size))] = Below(2) == 0 ? NAN : -INFINITY;
      values[Below(static_cast<int>(size))] = INFINITY;
    }
    q_stride = num_heads * head_dim + 5;
    q = TileNumbers(size_t(num_tokens) * q_stride, random);
    for (size_t r = 0; r < rows.size(); ++r) rows[r].pages = pages[r];
  }

  int Below(int n) { return static_cast<int>(random() % n); }

  std::vector<PageId> NewPages(int num_positions) {
    std::vector<PageId> result((num_positions + page_size - 1) / page_size);
    for (PageId& page : result) page = PageId{num_pages++};
    std::shuffle(result.begin(), result.end(), random);
    return result;
  }

  // In parts of some tokens, as a forward pass divides rows.
  void AddRow(const PagedRow& row, const std::vector<PageId>& table) {
    const int size = Below(2) == 0 ? row.num_tokens : 8;
    for (int i = 0; i < row.num_tokens; i += size) {
      PagedRow part = row;
      part.first_token = num_tokens;
      part.first_position += i;
      part.num_tokens = std::min(size, row.num_tokens - i);
      num_tokens += part.num_tokens;
      rows.push_back(part);
      pages.push_back(table);
    }
  }

  void AddRows() {
    // Beside the sizes of tiles and blocks.
    const int lengths[] = {1, 2, 3, 4, 5, 31, 32, 63, 64, 65, 127, 128, 129};
    const int length = lengths[Below(13)];
    if (options.window > 0 || Below(2) == 0) {
      const int first = Below(2) == 0 ? 0 : Below(150);
      AddRow({.num_tokens = length, .first_position = first, .pages = {}},
             NewPages(first + length));
      return;
    }
    const int num_keys = 1 + Below(200);
    const std::vector<PageId> source = NewPages(num_keys);
    for (int beam = 1 + Below(5); beam > 0; --beam) {
      AddRow({.num_tokens = Below(3) == 0 ? length : 1,
              .first_position = Below(9),
              .pages = {},
              .num_keys = Below(9) == 0 ? (num_keys + 1) / 2 : num_keys},
             source);
    }
  }

  std::vector<float> Attend(std::span<const PagedRow> some, int num_threads) {
    const auto pool = ThreadPool::Create(num_threads).value();
    KvLayer layer = {keys, values, page_size, num_kv_heads, head_dim};
    std::vector<float> out(size_t(num_tokens) * num_heads * head_dim, -1.0f);
    Attention(some, q.data(), q_stride, num_heads, layer, out, *pool, options);
    return out;
  }

  std::mt19937 random;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0, page_size = 0;
  int num_tokens = 0, num_pages = 0, q_stride = 0;
  AttentionOptions options;
  std::vector<float> biases, keys, values, q;
  std::vector<PagedRow> rows;
  std::vector<std::vector<PageId>> pages;
};

TEST_P(AttentionTilesTest, EachQueryHasTheBitsThatItHasAlone) {
  for (int seed = 0; seed < testing::Cases(60, 8); ++seed) {
    TileCase c(seed);
    const std::vector<float> together = c.Attend(c.rows, 1 + seed % 4);
    const size_t token_size = size_t(c.num_heads) * c.head_dim;
    for (const PagedRow& row : c.rows) {
      for (int i = 0; i < row.num_tokens; ++i) {
        PagedRow alone = row;
        alone.first_token += i;
        alone.first_position += i;
        alone.num_tokens = 1;
        const std::vector<float> out = c.Attend({&alone, 1}, 1);
        const size_t at = alone.first_token * token_size;
        ASSERT_EQ(
            std::memcmp(&out[at], &together[at], token_size * sizeof(float)), 0)
            << "case " << seed << ", token " << alone.first_token;
      }
    }
  }
}

}  // namespace
}  // namespace espalier
