#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "tests/few_cases.h"
#include "tests/kernels/each_target.h"

namespace espalier {
namespace {

using AttentionTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, AttentionTest, EachTarget(), TargetTestName);

std::vector<float> RandomFloats(size_t count, std::mt19937& random,
                                float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

struct Heads {
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 64;
};

// Sequences as plain tensors, one line a position.
struct Sequence {
  int num_tokens = 0;
  std::vector<float> q, k, v;
};

Sequence RandomSequence(int num_tokens, const Heads& heads, int seed,
                        float scale = 1.0f) {
  std::mt19937 random(seed);
  const size_t kv_size = size_t(num_tokens) * heads.num_kv_heads;
  Sequence s;
  s.num_tokens = num_tokens;
  s.q = RandomFloats(size_t(num_tokens) * heads.num_heads * heads.head_dim,
                     random, scale);
  s.k = RandomFloats(kv_size * heads.head_dim, random);
  s.v = RandomFloats(kv_size * heads.head_dim, random);
  return s;
}

// Key/value memory with pages in a shuffled order.
class Cache {
 public:
  Cache(const Heads& heads, int page_size, int num_pages) {
    const size_t size =
        size_t(num_pages) * page_size * heads.num_kv_heads * heads.head_dim;
    keys_.assign(size, NAN);
    values_.assign(size, NAN);
    layer_ = {keys_, values_, page_size, heads.num_kv_heads, heads.head_dim};
    for (int i = 0; i < num_pages; ++i) ids_.push_back(PageId{i});
    std::shuffle(ids_.begin(), ids_.end(), std::mt19937(3));
  }

  KvLayer& layer() { return layer_; }
  std::vector<PageId> Take(int num_tokens) {
    const int count = (num_tokens + layer_.page_size - 1) / layer_.page_size;
    const auto begin = ids_.begin() + num_taken_;
    num_taken_ += count;
    return {begin, begin + count};
  }

 private:
  std::vector<float> keys_, values_;
  KvLayer layer_;
  std::vector<PageId> ids_;
  int num_taken_ = 0;
};

struct AttendOptions {
  int page_size = 16;
  int chunk = 1 << 20;  // tokens of a sequence fed at once
  int num_threads = 1;
  AttentionOptions attention = {};
};

// The tokens [begin, end) of a tensor with `size` numbers a token.
std::span<const float> TokenSpan(const std::vector<float>& x, int begin,
                                 int end, int size) {
  return std::span(x).subspan(begin * size, (end - begin) * size);
}

// One step: tokens [begin, begin + options.chunk) of all sequences that have
// them.
void AttendStep(const std::vector<Sequence>& sequences,
                const std::vector<std::vector<PageId>>& pages,
                const Heads& heads, int begin, const AttendOptions& options,
                Cache& cache, ThreadPool& pool,
                std::vector<std::vector<float>>& outputs) {
  const int q_size = heads.num_heads * heads.head_dim;
  const int kv_size = heads.num_kv_heads * heads.head_dim;
  std::vector<PagedRow> rows;
  std::vector<size_t> owners;
  std::vector<float> qkv;
  int num_tokens = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int end = std::min(sequences[s].num_tokens, begin + options.chunk);
    if (begin >= end) continue;
    rows.push_back({num_tokens, end - begin, begin, pages[s]});
    owners.push_back(s);
    num_tokens += end - begin;
    for (int t = begin; t < end; ++t) {
      for (const auto& part : {TokenSpan(sequences[s].q, t, t + 1, q_size),
                               TokenSpan(sequences[s].k, t, t + 1, kv_size),
                               TokenSpan(sequences[s].v, t, t + 1, kv_size)}) {
        qkv.insert(qkv.end(), part.begin(), part.end());
      }
    }
  }
  const int stride = q_size + 2 * kv_size;
  StoreKeyValues(rows, &qkv[q_size], &qkv[q_size + kv_size], stride,
                 cache.layer());
  std::vector<float> out(num_tokens * q_size, NAN);
  Attention(rows, qkv.data(), stride, heads.num_heads, cache.layer(), out, pool,
            options.attention);
  for (size_t r = 0; r < rows.size(); ++r) {
    const int first = rows[r].first_token;
    const auto part = TokenSpan(out, first, first + rows[r].num_tokens, q_size);
    std::vector<float>& output = outputs[owners[r]];
    output.insert(output.end(), part.begin(), part.end());
  }
}

// Feeds all sequences side by side, in chunks; the outputs of each.
std::vector<std::vector<float>> Attend(const std::vector<Sequence>& sequences,
                                       const Heads& heads,
                                       const AttendOptions& options) {
  int num_pages = 1, longest = 0;
  for (const Sequence& s : sequences) {
    num_pages += s.num_tokens / options.page_size + 1;
    longest = std::max(longest, s.num_tokens);
  }
  Cache cache(heads, options.page_size, num_pages);
  const auto pool = ThreadPool::Create(options.num_threads).value();
  std::vector<std::vector<PageId>> pages;
  for (const Sequence& s : sequences) pages.push_back(cache.Take(s.num_tokens));
  std::vector<std::vector<float>> outputs(sequences.size());
  for (int begin = 0; begin < longest; begin += options.chunk) {
    AttendStep(sequences, pages, heads, begin, options, cache, *pool, outputs);
  }
  return outputs;
}

// One head of positions [0, num_tokens), of a tensor with `num_heads` heads.
std::vector<float> Head(const std::vector<float>& x, int num_tokens,
                        int num_heads, int head, int head_dim) {
  std::vector<float> result;
  for (int t = 0; t < num_tokens; ++t) {
    const auto begin = x.begin() + (t * num_heads + head) * head_dim;
    result.insert(result.end(), begin, begin + head_dim);
  }
  return result;
}

double MaxMagnitude(const std::vector<float>& x) {
  double result = 0;
  for (const float value : x)
    result = std::max(result, std::abs(double{value}));
  return result;
}

// Bound of the float32 error. A score of `head_dim` products has that many
// roundings of its size, which the exponential turns into a relative error of
// its weight. Sums over positions add one rounding per position.
double SumTolerance(std::span<const float> q, const std::vector<float>& keys,
                    const std::vector<float>& values, int num_positions) {
  double score_size = 0;
  for (int p = 0; p < num_positions; ++p) {
    double sum = 0;
    for (size_t i = 0; i < q.size(); ++i) {
      sum += std::abs(double{q[i]} * double{keys[p * q.size() + i]});
    }
    score_size = std::max(score_size, sum / std::sqrt(double(q.size())));
  }
  const double score_error = (q.size() + 2) * score_size;
  return MaxMagnitude(values) * 0x1p-24 *
         (2 * score_error + 2 * num_positions + 16);
}

void ExpectMatchesTwin(const Sequence& s, const Heads& heads,
                       const std::vector<float>& out,
                       const AttentionOptions& options = {}) {
  const int group = heads.num_heads / heads.num_kv_heads;
  for (int t = 0; t < s.num_tokens; ++t) {
    for (int h = 0; h < heads.num_heads; ++h) {
      const size_t at = (size_t(t) * heads.num_heads + h) * heads.head_dim;
      const auto q = std::span(s.q).subspan(at, heads.head_dim);
      const auto keys =
          Head(s.k, t + 1, heads.num_kv_heads, h / group, heads.head_dim);
      const auto values =
          Head(s.v, t + 1, heads.num_kv_heads, h / group, heads.head_dim);
      const auto expected = reference::Attention(q, keys, values, options);
      const double tolerance = SumTolerance(q, keys, values, t + 1);
      for (int i = 0; i < heads.head_dim; ++i) {
        ASSERT_NEAR(out[at + i], expected[i], tolerance)
            << "token " << t << " head " << h << " dimension " << i;
      }
    }
  }
}

TEST_P(AttentionTest, MatchesTheTwinForAnyHeads) {
  for (const Heads& heads :
       {Heads{1, 1, 1}, Heads{4, 2, 64}, Heads{8, 1, 16}, Heads{3, 3, 10},
        Heads{5, 1, 128}, Heads{6, 2, 80}, Heads{7, 1, 22}}) {
    const Sequence s = RandomSequence(70, heads, heads.head_dim);
    ExpectMatchesTwin(s, heads, Attend({s}, heads, {})[0]);
  }
}

TEST_P(AttentionTest, MatchesTheTwinOverManyBlocksOfPositions) {
  const Heads heads = {2, 1, 32};
  const Sequence s = RandomSequence(400, heads, 5);
  ExpectMatchesTwin(s, heads, Attend({s}, heads, {})[0]);
}

TEST_P(AttentionTest, MatchesTheTwinWhenOnePositionOutweighsTheRest) {
  const Heads heads = {4, 2, 64};
  const Sequence s = RandomSequence(200, heads, 6, 100.0f);
  ExpectMatchesTwin(s, heads, Attend({s}, heads, {})[0]);
}

// True if both are NaN, both are the same infinity, or they differ by at most
// `tolerance`.
bool SameOrNear(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= tolerance;
}

// Sets the scores of head 0 of every token with `position` to `score`, and
// those of head 1 to its opposite.
Sequence WithScore(const Heads& heads, int position, float score) {
  Sequence s = RandomSequence(130, heads, 11);
  const int dim = heads.head_dim;
  for (int t = 0; t < s.num_tokens; ++t) {
    for (int h = 0; h < heads.num_heads; ++h) {
      float* q = &s.q[(size_t(t) * heads.num_heads + h) * dim];
      q[0] = h == 1 ? -1.0f : 1.0f;
    }
  }
  s.k[size_t(position) * dim] = score;
  return s;
}

TEST_P(AttentionTest, NanAndInfiniteScoresCountAsInTheTwin) {
  for (const Heads& heads : {Heads{5, 1, 1}, Heads{3, 1, 40}}) {
    for (const float score : {NAN, INFINITY, -INFINITY}) {
      for (const int position : {0, 1, 63, 64, 129}) {
        const Sequence s = WithScore(heads, position, score);
        const std::vector<float> out = Attend({s}, heads, {})[0];
        for (size_t i = 0; i < out.size(); i += heads.head_dim) {
          const int num_seen = i / heads.head_dim / heads.num_heads + 1;
          const size_t num_numbers = size_t(num_seen) * heads.head_dim;
          const auto expected =
              reference::Attention(std::span(s.q).subspan(i, heads.head_dim),
                                   std::span(s.k).first(num_numbers),
                                   std::span(s.v).first(num_numbers));
          for (int d = 0; d < heads.head_dim; ++d) {
            ASSERT_PRED3(SameOrNear, out[i + d], expected[d], 1e-4)
                << "score " << score << " at position " << position
                << ", number " << i + d;
          }
        }
      }
    }
  }
}

TEST_P(AttentionTest, ScoresOfMinusInfinityOnlyGiveNan) {
  const Heads heads = {1, 1, 4};
  Sequence s = RandomSequence(70, heads, 12);
  for (int t = 0; t < s.num_tokens; ++t) {
    s.q[t * 4] = 1.0f;
    // The first 65 positions: a block and one more.
    if (t < 65) s.k[t * 4] = -INFINITY;
  }
  const std::vector<float> out = Attend({s}, heads, {})[0];
  for (int i = 0; i < 70 * 4; ++i) {
    EXPECT_EQ(std::isnan(out[i]), i < 65 * 4) << i;
  }
  // Position 65 is the first that weighs anything: all of the weight.
  for (int d = 0; d < 4; ++d) EXPECT_EQ(out[65 * 4 + d], s.v[65 * 4 + d]);
}

TEST_P(AttentionTest, ANanValueMakesItsDimensionNanWhateverItsWeight) {
  const Heads heads = {1, 1, 20};
  for (const int position : {0, 63, 64}) {
    Sequence s = RandomSequence(100, heads, 13);
    for (int t = 0; t < 100; ++t) s.q[t * 20] = 1.0f;
    s.k[position * 20] = -INFINITY;
    s.v[position * 20 + 3] = NAN;
    const std::vector<float> out = Attend({s}, heads, {})[0];
    for (int t = position + 1; t < 100; ++t) {
      for (int d = 0; d < 20; ++d) {
        EXPECT_EQ(std::isnan(out[t * 20 + d]), d == 3) << t << " " << d;
      }
    }
  }
}

TEST_P(AttentionTest, AWindowHidesWhatIsBeforeIt) {
  for (const Heads& heads : {Heads{4, 2, 64}, Heads{7, 1, 22}}) {
    const Sequence s = RandomSequence(200, heads, 21);
    for (const int window :
         testing::Cases(std::vector{1, 2, 16, 63, 64, 65, 130, 199, 200, 1000},
                        std::vector{1, 64, 65, 1000})) {
      const AttentionOptions options = {.window = window};
      const auto out = Attend({s}, heads, {.attention = options})[0];
      ExpectMatchesTwin(s, heads, out, options);
    }
  }
}

// The first position inside the window decides, the one before it does not.
TEST_P(AttentionTest, AWindowEndsWhereItSays) {
  const Heads heads = {1, 1, 16};
  constexpr int kWindow = 40;
  const Sequence s = RandomSequence(100, heads, 22);
  const AttendOptions options = {.attention = {.window = kWindow}};
  const std::vector<float> plain = Attend({s}, heads, options)[0];
  for (const int position : {0, 1, 30, 59, 60}) {
    Sequence changed = s;
    changed.k[position * 16] += 3;
    changed.v[position * 16] = NAN;
    const std::vector<float> out = Attend({changed}, heads, options)[0];
    for (int t = 0; t < 100; ++t) {
      const bool sees = position <= t && position > t - kWindow;
      EXPECT_EQ(std::isnan(out[t * 16]), sees) << position << " by " << t;
      if (!sees) {
        EXPECT_EQ(out[t * 16 + 1], plain[t * 16 + 1]);
      }
    }
  }
}

TEST_P(AttentionTest, MatchesTheTwinWithAnyScaleAndSoftCap) {
  const Heads heads = {4, 2, 24};
  const Sequence s = RandomSequence(150, heads, 23, 4.0f);
  for (const float scale : {0.0f, 0.05f, 0.4f}) {
    for (const float soft_cap : {0.0f, 2.0f, 50.0f}) {
      const AttentionOptions options = {
          .scale = scale, .soft_cap = soft_cap, .window = 70};
      const auto out = Attend({s}, heads, {.attention = options})[0];
      ExpectMatchesTwin(s, heads, out, options);
    }
  }
}

TEST_P(AttentionTest, AScoreThatIsNanStaysSoUnderASoftCap) {
  const Heads heads = {1, 1, 16};
  for (const float score : {NAN, INFINITY, -INFINITY}) {
    const Sequence s = WithScore(heads, 3, score);
    const AttentionOptions options = {.soft_cap = 5};
    const auto out = Attend({s}, heads, {.attention = options})[0];
    for (int t = 0; t < s.num_tokens; ++t) {
      EXPECT_EQ(std::isnan(out[t * 16]), std::isnan(score) && t >= 3);
    }
  }
}

TEST_P(AttentionTest, WithAWindowPagesChunksAndBatchMatesChangeNoBits) {
  const Heads heads = {6, 2, 20};
  std::vector<Sequence> sequences;
  for (int i = 0; i < 7; ++i) {
    sequences.push_back(RandomSequence(1 + 23 * i, heads, i));
  }
  for (const int window : {1, 17, 64, 100}) {
    const AttentionOptions options = {.soft_cap = 20, .window = window};
    std::vector<std::vector<float>> alone;
    for (const Sequence& s : sequences) {
      alone.push_back(Attend({s}, heads, {.attention = options})[0]);
    }
    for (const int page_size : {1, 3, 64}) {
      for (const int chunk : {1, 7, 200}) {
        EXPECT_EQ(Attend(sequences, heads,
                         {.page_size = page_size,
                          .chunk = chunk,
                          .num_threads = 2,
                          .attention = options}),
                  alone)
            << window << " pages of " << page_size << " chunks of " << chunk;
      }
    }
  }
}

TEST_P(AttentionTest, TheFirstTokenSeesOnlyItsOwnValue) {
  const Heads heads = {2, 2, 8};
  const Sequence s = RandomSequence(1, heads, 7);
  EXPECT_EQ(Attend({s}, heads, {})[0], s.v);
}

TEST_P(AttentionTest, PageSizesChangeNoBits) {
  const Heads heads = {4, 2, 64};
  const Sequence s = RandomSequence(150, heads, 8);
  const auto expected = Attend({s}, heads, {.page_size = 256});
  for (const int page_size : {1, 3, 16, 64}) {
    EXPECT_EQ(Attend({s}, heads, {.page_size = page_size}), expected)
        << page_size;
  }
}

TEST_P(AttentionTest, ChunksChangeNoBits) {
  const Heads heads = {6, 2, 20};
  const Sequence s = RandomSequence(100, heads, 9);
  const auto expected = Attend({s}, heads, {});
  for (const int chunk : {1, 2, 7, 63, 64}) {
    EXPECT_EQ(Attend({s}, heads, {.chunk = chunk}), expected) << chunk;
  }
}

TEST_P(AttentionTest, BatchMatesAndThreadsChangeNoBits) {
  const Heads heads = {4, 1, 32};
  std::vector<Sequence> sequences;
  for (int i = 0; i < 9; ++i) {
    sequences.push_back(RandomSequence(1 + 17 * i, heads, i));
  }
  for (const int num_threads : {1, 2, 3}) {
    const auto together =
        Attend(sequences, heads, {.chunk = 40, .num_threads = num_threads});
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(Attend({sequences[i]}, heads, {})[0], together[i]) << i;
    }
  }
}

}  // namespace
}  // namespace espalier
