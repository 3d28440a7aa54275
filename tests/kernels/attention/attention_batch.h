// AttentionBatch: rows of attention over a cache of random numbers, run by
// CudaAttention on the device and compared with the twin
// (kernels/attention/attention.h) within the rounding of the dtype.
//
//   AttentionBatch batch(shape);
//   batch.AddRow(1200, 1);       // decodes position 1,200
//   batch.AddGroup(5, 40, 3);    // five beams on 40 shared pages
//   batch.ExpectMatchesTwin();
#pragma once

#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/cuda_attention.h"
#include "kernels/attention/cuda_attention_plan.h"
#include "tests/kernels/kv_cache/paged_cache.h"

namespace espalier::testing {

class AttentionBatch {
 public:
  explicit AttentionBatch(const CudaAttentionShape& shape, int num_pages = 3000)
      : shape_(shape),
        cache_(shape.dtype, shape.num_kv_heads, shape.head_dim, shape.page_size,
               num_pages) {}

  // A chunk of `num_tokens` from `first_position` on; decoding if it is one.
  // Planned for `ahead` positions more.
  void AddRow(int first_position, int num_tokens, int ahead = 0);
  // Adds tokens that each see all `num_positions` of a source.
  void AddSource(int num_positions, int num_tokens);
  // Beams of `tail` positions of their own after pages they share.
  void AddGroup(int num_beams, int shared_pages, int tail, int ahead = 0);
  // Chunks of `num_tokens` each after pages they share: the first `tail`
  // positions after, each other one three more.
  void AddChunks(int num_rows, int shared_pages, int tail, int num_tokens);
  // As AddGroup, the halves of the beams sharing some more pages each.
  void AddTree(int num_beams, int shared_pages, int more_pages, int tail);
  // Some of each kind, of lengths around the sizes of tiles.
  void AddMixture();

  void SetOptions(const AttentionOptions& options) { options_ = options; }

  // Plans for a device of so few multiprocessors that runs fill it.
  void PlanForSmallDevice() { plans_for_small_device_ = true; }

  // Makes a number of a key (0) or value (1) of the last row's head 0 NaN.
  void Spoil(int position, int which, int dim);

  int num_queries() const { return static_cast<int>(positions_.size()); }
  int num_tables() const { return static_cast<int>(tables_.size()); }

  // [queries, num_heads, head_dim], and, if cases are many, the same again from
  // the same scratch.
  std::vector<std::vector<float>> Run(int max_partials = 1 << 16);

  // Runs it; every `step`-th query is the twin's, and, if cases are many, all
  // have the same bits a second time.
  void ExpectMatchesTwin(int step = 1, int max_partials = 1 << 16);

 private:
  void AddRowWith(const std::vector<int>& table, int kv_begin,
                  int first_position, int num_tokens, int ahead);
  // Returns the biases of all heads; a single number without biases.
  std::vector<float> BiasesOfHeads() const;
  // Rows of q are longer than their heads, as those of a joint projection.
  int QStride() const { return (shape_.num_heads + 2) * shape_.head_dim; }
  void FillQueries();
  int TableStride() const;
  std::vector<int> PackedTables() const;
  std::vector<float> RunOnce(const CudaAttentionInputs& inputs,
                             const CudaAttentionShape& shape, const void* q,
                             const CudaKvCache& cache, void* scratch,
                             const CudaDevice& device) const;
  void ExpectQueryMatchesTwin(const std::vector<float>& out, int query) const;
  double Scale() const;
  double Tolerance(std::span<const float> q, const std::vector<float>& keys,
                   const std::vector<float>& values, int count) const;

  const CudaAttentionShape shape_;
  AttentionOptions options_;
  bool plans_for_small_device_ = false;
  Cache cache_;
  std::vector<CudaAttentionRow> rows_;
  std::vector<CudaSharedPrefix> runs_;
  std::vector<int> positions_;
  std::vector<int> bias_positions_;
  std::vector<int> table_of_query_;
  std::vector<std::vector<int>> tables_;
  std::vector<float> q_;
};

}  // namespace espalier::testing
