#include "tests/kernels/attention/attention_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/load_as_float.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

// Returns the relative error of rounding to nearest.
double UnitRoundoff(DType dtype) {
  return dtype == DType::kFloat32    ? 0
         : dtype == DType::kBFloat16 ? 0x1p-8
                                     : 0x1p-11;
}

}  // namespace

void AttentionBatch::AddRow(int first_position, int num_tokens, int ahead) {
  std::vector<int> table;
  cache_.Extend(table, first_position + num_tokens);
  AddRowWith(table, 0, first_position, num_tokens, ahead);
}

void AttentionBatch::AddSource(int num_positions, int num_tokens) {
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

void AttentionBatch::AddGroup(int num_beams, int shared_pages, int tail,
                              int ahead) {
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

void AttentionBatch::AddChunks(int num_rows, int shared_pages, int tail,
                               int num_tokens) {
  std::vector<int> prefix;
  const int shared = shared_pages * shape_.page_size;
  cache_.Extend(prefix, shared);
  runs_.push_back(
      {num_queries(), num_rows * num_tokens, num_tables(), 0, shared});
  for (int row = 0; row < num_rows; ++row) {
    std::vector<int> table = prefix;
    cache_.Extend(table, shared + tail + num_tokens, shared);
    AddRowWith(table, shared, shared + tail, num_tokens, 0);
    tail += 3;
  }
}

void AttentionBatch::AddTree(int num_beams, int shared_pages, int more_pages,
                             int tail) {
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

void AttentionBatch::AddMixture() {
  const int page_size = shape_.page_size;
  for (const int length : {1, 15, 16, 17, 63, 65, 128, 131, 300}) {
    AddRow(length - 1, 1);
  }
  AddGroup(8, 128 / page_size, 1);
  AddRow(11, 5);
  AddRow(0, 70);
  AddGroup(4, 400 / page_size, 33);
  AddRow(200, 33);
  AddGroup(Cases(20, 6), 512 / page_size, 5);
  AddRow(40, 1, 1000);
  AddChunks(Cases(7, 3), 448 / page_size, 0, 5);
  AddChunks(Cases(17, 9), 320 / page_size, 21, 2);
  AddTree(9, 320 / page_size, 300 / page_size, 3);
}

void AttentionBatch::Spoil(int position, int which, int dim) {
  cache_.At(tables_.back(), position, 0, which, dim) = NAN;
}

std::vector<std::vector<float>> AttentionBatch::Run(int max_partials) {
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
  CudaDevice planned = *device;
  if (plans_for_small_device_) planned.num_sms = 2;
  const CudaAttentionWork work = PlanCudaAttention(
      rows_, runs_, num_queries(), shape_, 1 << 14, max_partials, planned);
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
  inputs.has_own_tables = work.has_own_tables;
  inputs.positions = positions.data();
  inputs.bias_positions = bias_positions.data();
  inputs.tables = tables.data();
  inputs.table_stride = TableStride();
  CudaKvCache layout = cache_.layout();
  layout.data = cache.data();
  const auto scratch =
      Upload(std::vector<std::byte>(CudaAttentionScratchBytes(inputs, shape_)));
  std::vector<std::vector<float>> results;
  for (int repeat = 0; repeat < Cases(2, 1); ++repeat) {
    results.push_back(
        RunOnce(inputs, shape, q.data(), layout, scratch.data(), *device));
  }
  return results;
}

std::vector<float> AttentionBatch::RunOnce(const CudaAttentionInputs& inputs,
                                           const CudaAttentionShape& shape,
                                           const void* q,
                                           const CudaKvCache& cache,
                                           void* scratch,
                                           const CudaDevice& device) const {
  const size_t size =
      size_t(num_queries()) * shape_.num_heads * shape_.head_dim;
  const auto out = Upload(ToBytes(std::vector<float>(size, NAN), shape_.dtype));
  auto stream = CudaStream::Create();
  EXPECT_OK(CudaAttention(inputs, shape, q, QStride(), cache, Cache::kLayer,
                          out.data(), scratch, device, stream->get()));
  EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  const std::vector<std::byte> bytes = Download(out);
  std::vector<float> result;
  for (size_t i = 0; i < size; ++i) {
    result.push_back(
        LoadAsFloat(&bytes[i * NumBytes(shape_.dtype)], shape_.dtype));
  }
  return result;
}

void AttentionBatch::ExpectMatchesTwin(int step, int max_partials) {
  const auto results = Run(max_partials);
  EXPECT_EQ(results.front(), results.back()) << "not the same bits twice";
  for (int query = 0; query < num_queries(); query += step) {
    ASSERT_NO_FATAL_FAILURE(ExpectQueryMatchesTwin(results[0], query));
  }
}

void AttentionBatch::ExpectQueryMatchesTwin(const std::vector<float>& out,
                                            int query) const {
  const int group = shape_.num_heads / shape_.num_kv_heads;
  const std::vector<int>& table = tables_[table_of_query_[query]];
  const int count = positions_[query] + 1;
  for (int h = 0; h < shape_.num_heads; ++h) {
    const auto keys = cache_.Gather(table, count, h / group, 0);
    const auto values = cache_.Gather(table, count, h / group, 1);
    const auto q = std::span(q_).subspan(
        size_t(query) * QStride() + h * shape_.head_dim, shape_.head_dim);
    AttentionOptions options = options_;
    if (options.biases != nullptr) {
      options.biases += h * (2 * options.max_distance + 1);
    }
    // The twin counts positions from where a window begins.
    const auto expected =
        reference::Attention(q, keys, values, options,
                             options.window > 0 ? -1 : bias_positions_[query]);
    const double tolerance = Tolerance(q, keys, values, count);
    const double result_rounding = UnitRoundoff(shape_.dtype);
    for (int i = 0; i < shape_.head_dim; ++i) {
      const size_t at =
          (size_t(query) * shape_.num_heads + h) * shape_.head_dim + i;
      ASSERT_NEAR(out[at], expected[i],
                  tolerance + result_rounding * std::abs(expected[i]))
          << "query " << query << " at " << positions_[query] << " head " << h
          << " dimension " << i;
    }
  }
}

void AttentionBatch::AddRowWith(const std::vector<int>& table, int kv_begin,
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

std::vector<float> AttentionBatch::BiasesOfHeads() const {
  if (options_.biases == nullptr) return {0};
  const int size = shape_.num_heads * (2 * options_.max_distance + 1);
  return {options_.biases, options_.biases + size};
}

void AttentionBatch::FillQueries() {
  Numbers numbers(shape_.dtype, 5);
  q_.assign(size_t(num_queries()) * QStride(), 0);
  for (float& x : q_) x = numbers.Next();
}

int AttentionBatch::TableStride() const {
  size_t longest = 0;
  for (const auto& table : tables_) longest = std::max(longest, table.size());
  return static_cast<int>(longest) + 3;
}

std::vector<int> AttentionBatch::PackedTables() const {
  // Entries beyond a table's end must not be read.
  std::vector<int> packed(tables_.size() * TableStride(), 1 << 30);
  for (size_t i = 0; i < tables_.size(); ++i) {
    std::copy(tables_[i].begin(), tables_[i].end(),
              packed.begin() + i * TableStride());
  }
  return packed;
}

double AttentionBatch::Scale() const {
  return options_.scale > 0 ? double{options_.scale}
                            : 1 / std::sqrt(double(shape_.head_dim));
}

// float32: a score of head_dim products is off by that many roundings of its
// size, which is a relative error of its weight; sums over positions add one
// rounding a position. 16 bits: weights are rounded once; the result is as
// well, which is not in this.
double AttentionBatch::Tolerance(std::span<const float> q,
                                 const std::vector<float>& keys,
                                 const std::vector<float>& values,
                                 int count) const {
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
  const double subnormal =
      shape_.dtype == DType::kFloat16 ? count * 0x1p-25 : 0;
  return value_size * (float_error + UnitRoundoff(shape_.dtype) + subnormal) *
         1.01;
}

}  // namespace espalier::testing
