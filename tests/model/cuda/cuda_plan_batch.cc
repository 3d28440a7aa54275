#include "tests/model/cuda/cuda_plan_batch.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/attention/cuda_attention_plan.h"

namespace espalier::testing {
namespace {

// Full pages that two rows begin with and neither writes to.
int CommonPages(const StepPlan& plan, int a, int b, int page_size) {
  const auto pages_a = plan.row_pages(a);
  const auto pages_b = plan.row_pages(b);
  const int most =
      std::min(plan.rows[a].first_position, plan.rows[b].first_position) /
      page_size;
  int common = 0;
  while (common < most && pages_a[common] == pages_b[common]) ++common;
  return common;
}

struct AttentionTask {
  std::vector<CudaAttentionRow> rows;
  std::vector<CudaSharedPrefix> runs;
};

AttentionTask TaskOf(const StepPlan& plan) {
  AttentionTask task;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    task.rows.push_back({.first_query = row.first_token,
                         .num_queries = row.num_tokens,
                         .table = static_cast<int>(r),
                         .max_positions = row.first_position + row.num_tokens});
  }
  return task;
}

void ShareRuns(const StepPlan& plan, int page_size, AttentionTask& task) {
  const int num_rows = static_cast<int>(plan.rows.size());
  const auto decodes = [&](int r) { return plan.rows[r].num_tokens == 1; };
  for (int first = 0, end; first < num_rows; first = end) {
    end = first + 1;
    int common = plan.rows[first].first_position / page_size;
    for (; end < num_rows && decodes(first) && decodes(end); ++end) {
      const int next = CommonPages(plan, first, end, page_size);
      if (next == 0) break;
      common = std::min(common, next);
    }
    if (end == first + 1) continue;
    task.runs.push_back({.first_query = plan.rows[first].first_token,
                         .num_queries = end - first,
                         .table = first,
                         .kv_begin = 0,
                         .kv_end = common * page_size});
    for (int r = first; r < end; ++r) {
      task.rows[r].kv_begin = common * page_size;
    }
  }
}

int TableStride(const StepPlan& plan) {
  size_t stride = 1;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    stride = std::max(stride, plan.row_pages(r).size());
  }
  return static_cast<int>(stride);
}

// Arrays one after the other, for one upload; each begins at a multiple of 4.
class Arrays {
 public:
  size_t Add(std::span<const int> values) {
    const size_t begin = values_.size();
    values_.insert(values_.end(), values.begin(), values.end());
    values_.resize((values_.size() + 3) / 4 * 4);
    return begin;
  }
  const std::vector<int>& values() const { return values_; }

 private:
  std::vector<int> values_;
};

struct TokenArrays {
  std::vector<int> positions;
  std::vector<int> token_tables;
  std::vector<int> logits_tokens;
  std::vector<int> tables;
};

TokenArrays ArraysOf(const StepPlan& plan, int stride) {
  TokenArrays arrays;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    for (int t = 0; t < row.num_tokens; ++t) {
      arrays.positions.push_back(row.first_position + t);
      arrays.token_tables.push_back(static_cast<int>(r));
    }
    for (int t = row.num_tokens - row.num_logits; t < row.num_tokens; ++t) {
      arrays.logits_tokens.push_back(row.first_token + t);
    }
    for (const PageId page : plan.row_pages(r)) {
      arrays.tables.push_back(page.value);
    }
    arrays.tables.resize((r + 1) * stride);
  }
  return arrays;
}

template <typename T>
absl::StatusOr<DeviceBuffer<T>> Upload(std::span<const T> values) {
  ASSIGN_OR_RETURN(auto buffer, DeviceBuffer<T>::Create(values.size()));
  RETURN_IF_CUDA_ERROR(cudaMemcpy(buffer.data(), values.data(),
                                  values.size_bytes(), cudaMemcpyHostToDevice));
  // The copy may still be under way, and our streams do not wait for it.
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
  return buffer;
}

}  // namespace

absl::StatusOr<CudaPlanBatch> CudaPlanBatch::Create(
    const StepPlan& plan, const CudaTransformer& transformer,
    const CudaDevice& device, const Options& options) {
  const int num_tokens = static_cast<int>(plan.tokens.size());
  AttentionTask task = TaskOf(plan);
  if (options.share_runs) {
    ShareRuns(plan, transformer.description().page_size, task);
  }
  const CudaAttentionWork work = PlanCudaAttention(
      task.rows, task.runs, num_tokens, transformer.attention_shape(),
      options.max_items, options.max_partials, device);

  const int stride = TableStride(plan);
  const TokenArrays from = ArraysOf(plan, stride);
  const int num_items = static_cast<int>(work.items.size());
  Arrays arrays;
  const size_t tokens = arrays.Add(plan.tokens);
  const size_t positions = arrays.Add(from.positions);
  const size_t token_tables = arrays.Add(from.token_tables);
  const size_t logits_tokens = arrays.Add(from.logits_tokens);
  const size_t tables = arrays.Add(from.tables);
  const size_t item_counts = arrays.Add(work.item_counts);
  const size_t indptr = arrays.Add(work.partial_indptr);

  CudaPlanBatch batch;
  ASSIGN_OR_RETURN(batch.ints_, Upload<int>(arrays.values()));
  ASSIGN_OR_RETURN(batch.items_, Upload<CudaAttentionItem>(work.items));
  const int* const ints = batch.ints_.data();
  CudaBatch& view = batch.view_;
  view.num_tokens = num_tokens;
  view.tokens = ints + tokens;
  view.positions = ints + positions;
  view.token_tables = ints + token_tables;
  view.attention.items = batch.items_.data();
  view.attention.item_counts = ints + item_counts;
  view.attention.partial_indptr = ints + indptr;
  view.attention.max_queries = num_tokens;
  view.attention.max_items = num_items;
  view.attention.max_partials = work.partial_indptr.back();
  view.attention.has_own_tables = work.has_own_tables;
  view.attention.positions = view.positions;
  view.attention.tables = ints + tables;
  view.attention.table_stride = stride;
  view.num_logits = plan.num_logits;
  if (plan.num_logits < num_tokens) view.logits_tokens = ints + logits_tokens;
  return batch;
}

}  // namespace espalier::testing
