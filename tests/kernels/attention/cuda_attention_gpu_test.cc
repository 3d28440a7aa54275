#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/load_as_float.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cuda_attention.h"
#include "tests/few_cases.h"
#include "tests/kernels/kv_cache/paged_cache.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cache;
using testing::Cases;
using testing::Download;
using testing::Numbers;
using testing::ToBytes;
using testing::Upload;

// Rows as attention is asked for them.
class Batch {
 public:
  explicit Batch(const CudaAttentionShape& shape, int num_pages = 3000)
      : shape_(shape),
        cache_(shape.dtype, shape.num_kv_heads, shape.head_dim, shape.page_size,
               num_pages) {}

  // A chunk of `num_tokens` from `first_position` on; decoding if it is one.
  // Planned for `ahead` positions more.
  void AddRow(int first_position, int num_tokens, int ahead = 0) {
    std::vector<int> table;
    cache_.Extend(table, first_position + num_tokens);
    AddRowWith(table, 0, first_position, num_tokens, ahead);
  }

  // Tokens of a source of so many positions, each of which sees all of it.
  void AddSource(int num_positions, int num_tokens) {
    std::vector<int> table;
    cache_.Extend(table, num_positions);
    rows_.push_back({num_queries(), num_tokens, num_tables(), 0, num_positions,
                     /*sees_all=*/1});
    for (int i = 0; i < num_tokens; ++i) {
      positions_.push_back(num_positions - 1);
      bias_positions_.push_back(i * num_positions / num_tokens);
      table_of_query_.push_back(num_tables());
    }
    tables_.push_back(table);
  }

  // Beams of `tail` positions of their own after pages they share.
  void AddGroup(int num_beams, int shared_pages, int tail, int ahead = 0) {
    std::vector<int> prefix;
    const int shared = shared_pages * shape_.page_size;
    cache_.Extend(prefix, shared);
    runs_.push_back({num_queries(), num_beams, num_tables(), 0, shared});
    for (int b = 0; b < num_beams; ++b) {
      std::vector<int> table = prefix;
      cache_.Extend(table, shared + tail, shared);
      AddRowWith(table, shared, shared + tail - 1, 1, ahead);
    }
  }

  // As AddGroup, the halves of the beams sharing some more pages each.
  void AddTree(int num_beams, int shared_pages, int more_pages, int tail) {
    std::vector<int> trunk;
    const int shared = shared_pages * shape_.page_size;
    const int half_shared = shared + more_pages * shape_.page_size;
    cache_.Extend(trunk, shared);
    const int first = num_queries();
    const int half = num_beams / 2;
    for (int side = 0; side < 2; ++side) {
      const int num = side == 0 ? half : num_beams - half;
      runs_.push_back({num_queries(), num, num_tables(), shared, half_shared});
      std::vector<int> branch = trunk;
      cache_.Extend(branch, half_shared, shared);
      for (int b = 0; b < num; ++b) {
        std::vector<int> table = branch;
        cache_.Extend(table, half_shared + tail, half_shared);
        AddRowWith(table, half_shared, half_shared + tail - 1, 1, 0);
      }
    }
    runs_.push_back({first, num_beams, num_tables() - 1, 0, shared});
  }

  void SetOptions(const AttentionOptions& options) { options_ = options; }

  // Makes a number of a key (0) or value (1) of the last row's head 0 NaN.
  void Spoil(int position, int which, int dim) {
    cache_.At(tables_.back(), position, 0, which, dim) = NAN;
  }

  int num_queries() const { return static_cast<int>(positions_.size()); }
  int num_tables() const { return static_cast<int>(tables_.size()); }

  // [queries, num_heads, head_dim], and, if cases are many, the same again from
  // the same scratch.
  std::vector<std::vector<float>> Run(int max_partials = 1 << 16) {
    auto device = CudaDevice::Open(0);
    CudaAttentionShape shape = shape_;
    shape.scale = options_.scale;
    shape.soft_cap = options_.soft_cap;
    shape.window = options_.window;
    const auto biases = Upload(BiasesOfHeads());
    if (options_.biases != nullptr) {
      shape.biases = biases.data();
      shape.max_distance = options_.max_distance;
    }
    EXPECT_OK(PrepareCudaAttention(shape, *device));
    const CudaAttentionWork work = PlanCudaAttention(
        rows_, runs_, num_queries(), shape_, 1 << 14, max_partials, *device);
    EXPECT_LE(work.partial_indptr.back(), max_partials);
    FillQueries();
    const auto q = Upload(ToBytes(q_, shape_.dtype));
    const auto cache = Upload(ToBytes(cache_.elements(), shape_.dtype));
    const auto items = Upload(work.items);
    const auto counts =
        Upload(std::vector(work.item_counts.begin(), work.item_counts.end()));
    const auto indptr = Upload(work.partial_indptr);
    const auto positions = Upload(positions_);
    const auto bias_positions = Upload(bias_positions_);
    const auto tables = Upload(PackedTables());
    CudaAttentionInputs inputs;
    inputs.items = items.data();
    inputs.item_counts = counts.data();
    inputs.partial_indptr = indptr.data();
    inputs.max_queries = num_queries();
    inputs.max_items = static_cast<int>(work.items.size());
    inputs.max_partials = work.partial_indptr.back();
    inputs.positions = positions.data();
    inputs.bias_positions = bias_positions.data();
    inputs.tables = tables.data();
    inputs.table_stride = TableStride();
    CudaKvCache layout = cache_.layout();
    layout.data = cache.data();
    const auto scratch = Upload(
        std::vector<std::byte>(CudaAttentionScratchBytes(inputs, shape_)));
    std::vector<std::vector<float>> results;
    for (int repeat = 0; repeat < Cases(2, 1); ++repeat) {
      const size_t size =
          size_t(num_queries()) * shape_.num_heads * shape_.head_dim;
      const auto out =
          Upload(ToBytes(std::vector<float>(size, NAN), shape_.dtype));
      auto stream = CudaStream::Create();
      EXPECT_OK(CudaAttention(inputs, shape, q.data(), QStride(), layout,
                              Cache::kLayer, out.data(), scratch.data(),
                              *device, stream->get()));
      EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
      const std::vector<std::byte> bytes = Download(out);
      results.emplace_back();
      for (size_t i = 0; i < size; ++i) {
        results.back().push_back(
            LoadAsFloat(&bytes[i * NumBytes(shape_.dtype)], shape_.dtype));
      }
    }
    return results;
  }

  // Compares every `step`-th query with the twin.
  void ExpectMatchesTwin(const std::vector<float>& out, int step = 1) const {
    const int group = shape_.num_heads / shape_.num_kv_heads;
    for (int t = 0; t < num_queries(); t += step) {
      const std::vector<int>& table = tables_[table_of_query_[t]];
      const int count = positions_[t] + 1;
      for (int h = 0; h < shape_.num_heads; ++h) {
        const auto keys = cache_.Gather(table, count, h / group, 0);
        const auto values = cache_.Gather(table, count, h / group, 1);
        const auto q = std::span(q_).subspan(
            size_t(t) * QStride() + h * shape_.head_dim, shape_.head_dim);
        AttentionOptions options = options_;
        if (options.biases != nullptr) {
          options.biases += h * (2 * options.max_distance + 1);
        }
        // The twin counts positions from where a window begins.
        const auto expected =
            reference::Attention(q, keys, values, options,
                                 options.window > 0 ? -1 : bias_positions_[t]);
        const double tolerance = Tolerance(q, keys, values, count);
        for (int i = 0; i < shape_.head_dim; ++i) {
          const size_t at =
              (size_t(t) * shape_.num_heads + h) * shape_.head_dim + i;
          ASSERT_NEAR(out[at], expected[i], tolerance)
              << "query " << t << " at " << positions_[t] << " head " << h
              << " dimension " << i;
        }
      }
    }
  }

 private:
  void AddRowWith(const std::vector<int>& table, int kv_begin,
                  int first_position, int num_tokens, int ahead) {
    rows_.push_back({num_queries(), num_tokens, num_tables(), kv_begin,
                     first_position + num_tokens + ahead});
    for (int i = 0; i < num_tokens; ++i) {
      positions_.push_back(first_position + i);
      bias_positions_.push_back(first_position + i);
      table_of_query_.push_back(num_tables());
    }
    tables_.push_back(table);
  }

  // Of all heads; one number where there are none.
  std::vector<float> BiasesOfHeads() const {
    if (options_.biases == nullptr) return {0};
    const int size = shape_.num_heads * (2 * options_.max_distance + 1);
    return {options_.biases, options_.biases + size};
  }

  // Rows of q are longer than their heads, as those of a joint projection.
  int QStride() const { return (shape_.num_heads + 2) * shape_.head_dim; }
  void FillQueries() {
    Numbers numbers(shape_.dtype, 5);
    q_.assign(size_t(num_queries()) * QStride(), 0);
    for (float& x : q_) x = numbers.Next();
  }

  int TableStride() const {
    size_t longest = 0;
    for (const auto& table : tables_) longest = std::max(longest, table.size());
    return static_cast<int>(longest) + 3;
  }
  std::vector<int> PackedTables() const {
    // What is beyond a table's end must not be looked up.
    std::vector<int> packed(tables_.size() * TableStride(), 1 << 30);
    for (size_t i = 0; i < tables_.size(); ++i) {
      std::copy(tables_[i].begin(), tables_[i].end(),
                packed.begin() + i * TableStride());
    }
    return packed;
  }

  double Scale() const {
    return options_.scale > 0 ? double{options_.scale}
                              : 1 / std::sqrt(double(shape_.head_dim));
  }

  // float32: a score of head_dim products is off by that many roundings of its
  // size, which is a relative error of its weight; sums over positions add one
  // rounding a position. 16 bits: weights and the result are rounded once.
  double Tolerance(std::span<const float> q, const std::vector<float>& keys,
                   const std::vector<float>& values, int count) const {
    double score_size = 0, value_size = 0;
    for (int p = 0; p < count; ++p) {
      double sum = 0;
      for (size_t i = 0; i < q.size(); ++i) {
        const double value = std::abs(double{values[p * q.size() + i]});
        sum += std::abs(double{q[i]} * double{keys[p * q.size() + i]});
        value_size = std::max(value_size, value);
      }
      score_size = std::max(score_size, sum * Scale());
    }
    // A soft cap's slope is 1 at most, and its tanh good to some roundings.
    const double score_error =
        (q.size() + 2) * score_size + 8 * options_.soft_cap;
    const double float_error = 0x1p-24 * (2 * score_error + 2 * count + 32);
    // Small f16 weights have fewer bits.
    const double rounding = shape_.dtype == DType::kFloat32    ? 0
                            : shape_.dtype == DType::kBFloat16 ? 0x1p-8
                                                               : 0x1p-11;
    const double subnormal =
        shape_.dtype == DType::kFloat16 ? count * 0x1p-25 : 0;
    return value_size * (float_error + rounding + subnormal) * 1.01;
  }

  const CudaAttentionShape shape_;
  AttentionOptions options_;
  Cache cache_;
  std::vector<CudaAttentionRow> rows_;
  std::vector<CudaSharedPrefix> runs_;
  std::vector<int> positions_;
  std::vector<int> bias_positions_;
  std::vector<int> table_of_query_;
  std::vector<std::vector<int>> tables_;
  std::vector<float> q_;
};

void ExpectRight(Batch& batch, int step = 1, int max_partials = 1 << 16) {
  const auto results = batch.Run(max_partials);
  EXPECT_EQ(results.front(), results.back()) << "not the same bits twice";
  batch.ExpectMatchesTwin(results[0], step);
}

void AddMixture(Batch& batch, int page_size) {
  for (const int length : {1, 15, 16, 17, 63, 65, 128, 131, 300}) {
    batch.AddRow(length - 1, 1);
  }
  batch.AddGroup(8, 128 / page_size, 1);
  batch.AddRow(11, 5);
  batch.AddRow(0, 70);
  batch.AddGroup(4, 400 / page_size, 33);
  batch.AddRow(200, 33);
  batch.AddGroup(Cases(20, 6), 512 / page_size, 5);
  batch.AddRow(40, 1, 1000);
  batch.AddTree(9, 320 / page_size, 300 / page_size, 3);
}

constexpr DType kBf16 = DType::kBFloat16, kF16 = DType::kFloat16,
                kF32 = DType::kFloat32;

class CudaAttentionTest : public ::testing::TestWithParam<CudaAttentionShape> {
};

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAttentionTest,
    ::testing::Values(
        // Of the tensor cores: groups that fill tiles, and that do not.
        CudaAttentionShape{8, 2, 128, 16, kBf16},
        CudaAttentionShape{8, 2, 64, 16, kF16},
        CudaAttentionShape{2, 2, 64, 32, kBf16},
        CudaAttentionShape{6, 2, 128, 64, kF16},
        CudaAttentionShape{20, 1, 64, 16, kBf16},
        CudaAttentionShape{7, 1, 128, 48, kBf16},
        // Of all others.
        CudaAttentionShape{8, 2, 128, 16, kF32},
        CudaAttentionShape{2, 2, 64, 1, kF32},
        CudaAttentionShape{5, 1, 256, 7, kF32},
        CudaAttentionShape{4, 2, 8, 5, kBf16},
        CudaAttentionShape{12, 1, 80, 16, kF16}),
    [](const auto& shape) {
      const CudaAttentionShape& s = shape.param;
      return "Heads" + std::to_string(s.num_heads) + "Of" +
             std::to_string(s.num_kv_heads) + "Dim" +
             std::to_string(s.head_dim) + "Page" + std::to_string(s.page_size) +
             "Type" + std::to_string(static_cast<int>(s.dtype));
    });

TEST_P(CudaAttentionTest, MatchesTheTwinForMixedBatches) {
  const int page_size = GetParam().page_size;
  Batch batch(GetParam(), 9000 / page_size + 200);
  AddMixture(batch, page_size);
  ExpectRight(batch);
}

TEST_P(CudaAttentionTest, MatchesTheTwinWithWindows) {
  const int page_size = GetParam().page_size;
  for (const int window : {1, 2, 31, 64, 130, 5000}) {
    SCOPED_TRACE(window);
    Batch batch(GetParam(), 9000 / page_size + 200);
    batch.SetOptions({.window = window});
    AddMixture(batch, page_size);
    ExpectRight(batch, Cases(1, 5));
  }
}

// Caps that bend every score, some, and none by much.
TEST_P(CudaAttentionTest, MatchesTheTwinWithSoftCaps) {
  const int page_size = GetParam().page_size;
  for (const AttentionOptions& options :
       {AttentionOptions{.soft_cap = 0.25f}, AttentionOptions{.soft_cap = 50},
        AttentionOptions{.scale = 0.75f, .soft_cap = 2},
        AttentionOptions{.scale = 0.3f, .soft_cap = 3, .window = 70}}) {
    SCOPED_TRACE(options.soft_cap);
    Batch batch(GetParam(), 9000 / page_size + 200);
    batch.SetOptions(options);
    AddMixture(batch, page_size);
    ExpectRight(batch, Cases(1, 5));
  }
}

TEST_P(CudaAttentionTest, MatchesTheTwinWithAnotherScale) {
  const int page_size = GetParam().page_size;
  for (const float scale : {0.01f, 0.2f}) {
    SCOPED_TRACE(scale);
    Batch batch(GetParam(), 9000 / page_size + 200);
    batch.SetOptions({.scale = scale});
    AddMixture(batch, page_size);
    ExpectRight(batch, Cases(1, 5));
  }
}

TEST_P(CudaAttentionTest, MatchesTheTwinWhereQueriesSeeAll) {
  const int page_size = GetParam().page_size;
  Batch batch(GetParam(), 9000 / page_size + 200);
  for (const int length : {1, 17, 64, 300, 1200}) {
    batch.AddSource(length, 1);
    batch.AddSource(length, length);
    batch.AddRow(length, 3);
  }
  ExpectRight(batch, Cases(1, 7));
}

// Distances up to the largest and beyond, of queries in the middle of what they
// see; with what else changes scores.
TEST_P(CudaAttentionTest, MatchesTheTwinWithBiases) {
  CudaAttentionShape shape = GetParam();
  shape.without_tensor_cores = true;
  for (const int max_distance : {0, 1, 30, 500}) {
    SCOPED_TRACE(max_distance);
    Numbers numbers(kF32, max_distance);
    std::vector<float> biases(shape.num_heads * (2 * max_distance + 1));
    for (float& bias : biases) bias = 3 * numbers.Next();
    for (const auto& [window, soft_cap] :
         {std::pair(0, 0.0f), std::pair(70, 0.0f), std::pair(0, 2.0f)}) {
      Batch batch(shape, 9000 / shape.page_size + 200);
      batch.SetOptions({.scale = 0.5f,
                        .soft_cap = soft_cap,
                        .window = window,
                        .biases = biases.data(),
                        .max_distance = max_distance});
      AddMixture(batch, shape.page_size);
      if (window == 0) {
        batch.AddSource(300, 300);
        batch.AddSource(65, 2);
      }
      ExpectRight(batch, Cases(1, 5));
    }
  }
}

TEST_P(CudaAttentionTest, MatchesTheTwinForLongRuns) {
  const int page_size = GetParam().page_size;
  Batch batch(GetParam(), 16000 / page_size + 60);
  batch.AddGroup(8, Cases(8192, 1024) / page_size, Cases(32, 3));
  batch.AddRow(Cases(3000, 600), 1);
  batch.AddRow(Cases(1000, 200), Cases(80, 20));
  ExpectRight(batch, 7);
}

TEST_P(CudaAttentionTest, MatchesTheTwinForManyBeams) {
  const int page_size = GetParam().page_size;
  Batch batch(GetParam(), 6000 / page_size + 400);
  batch.AddGroup(Cases(130, 66), Cases(300, 128) / page_size, Cases(8, 1),
                 Cases(200, 20));
  batch.AddGroup(Cases(70, 34), 128 / page_size, Cases(30, 2));
  ExpectRight(batch, 9);
}

TEST_P(CudaAttentionTest, MatchesTheTwinWhenPartialsAreFew) {
  const int page_size = GetParam().page_size;
  Batch batch(GetParam(), 6000 / page_size + 60);
  batch.AddGroup(8, Cases(3000, 1000) / page_size, 5);
  batch.AddRow(Cases(2000, 700), 1);
  ExpectRight(batch, 1, 17);
}

TEST_P(CudaAttentionTest, NanReachesWhatAttendsToItAndNothingElse) {
  const CudaAttentionShape& shape = GetParam();
  const int page_size = shape.page_size;
  const int group = shape.num_heads / shape.num_kv_heads;
  for (const int which : {0, 1}) {
    Batch batch(shape, 3000 / page_size + 60);
    batch.AddRow(99, 1);
    batch.AddGroup(3, 1000 / page_size, 9);
    batch.Spoil(40, which, 3);  // of the group's pages
    const std::vector<float> out = batch.Run()[0];
    for (size_t i = 0; i < out.size(); ++i) {
      const int dim = i % shape.head_dim;
      const int head = i / shape.head_dim % shape.num_heads;
      const int query = i / shape.head_dim / shape.num_heads;
      const bool reached =
          query > 0 && head < group && (which == 0 || dim == 3);
      ASSERT_EQ(std::isnan(out[i]), reached)
          << "query " << query << " head " << head << " dimension " << dim;
    }
  }
}

TEST(CudaAttentionLawTest, BatchMatesChangeNoBitsInFloat32) {
  const CudaAttentionShape shape = {4, 2, 64, 16, kF32};
  for (const int window : {0, 5, 300}) {
    Batch alone(shape);
    alone.AddRow(1200, 1);
    alone.AddGroup(5, 40, 3);
    Batch together(shape);
    together.AddRow(1200, 1);
    together.AddGroup(5, 40, 3);
    AddMixture(together, 16);
    alone.SetOptions({.window = window});
    together.SetOptions({.window = window});
    const auto expected = alone.Run()[0];
    auto result = together.Run()[0];
    result.resize(expected.size());
    EXPECT_EQ(result, expected) << window;
  }
}

TEST(CudaAttentionLawTest, ImpossibleShapesAreRefused) {
  auto device = CudaDevice::Open(0);
  CudaAttentionInputs inputs;
  inputs.max_items = 1;
  const CudaAttentionShape shape = {8, 3, 64, 16, kBf16};
  CudaKvCache cache;
  cache.num_kv_heads = 3;
  EXPECT_THAT(CudaAttention(inputs, shape, nullptr, 512, cache, 0, nullptr,
                            nullptr, *device, nullptr),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("cannot share")));
}

TEST(CudaAttentionLawTest, ImpossibleOptionsAreRefused) {
  auto device = CudaDevice::Open(0);
  CudaAttentionInputs inputs;
  inputs.max_items = 1;
  const CudaKvCache cache;  // of one head of 64
  const auto run = [&](const CudaAttentionShape& shape) {
    return CudaAttention(inputs, shape, nullptr, 64, cache, 0, nullptr, nullptr,
                         *device, nullptr);
  };
  EXPECT_THAT(run({.window = -1}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("got -1")));
  EXPECT_THAT(run({.soft_cap = NAN}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("soft_cap")));
}

}  // namespace
}  // namespace espalier
