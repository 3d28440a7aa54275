// RowHistory: the text of one row of logits, in a kernel.
#pragma once

#include <cstdint>

#include "kernels/resident/cuda_row_history.h"

namespace espalier {

class RowHistory {
 public:
  // `token` is the row's, of CudaRowHistories::logits_tokens.
  __device__ RowHistory(const CudaRowHistories& in, int token)
      : page_size_(in.page_size),
        size_(in.positions[token] + 1),
        table_(in.tables + int64_t{in.token_tables[token]} * in.table_stride),
        tokens_(in.page_tokens) {}
  __device__ int size() const { return size_; }
  __device__ int operator[](int place) const {
    return tokens_[int64_t{table_[place / page_size_]} * page_size_ +
                   place % page_size_];
  }

 private:
  const int page_size_;
  const int size_;
  const int* const table_;
  const int* const tokens_;
};

}  // namespace espalier
