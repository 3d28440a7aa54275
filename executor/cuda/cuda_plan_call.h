// CudaPlanCall: some of a plan's rows as one call of a CudaModel, in vectors of
// the host, and CudaPlanReader, which divides a plan into such calls.
//
//   CudaPlanReader reader(&plan, bounds, page_size);
//   while (!reader.is_done()) {
//     const CudaPlanCall call = reader.Next();
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/ids.h"
#include "exec_request/cuda_model.h"
#include "exec_request/step_plan.h"
#include "kernels/attention/cuda_attention.h"

namespace espalier {

// Page ids of a call at most, unless one sequence has more.
inline constexpr int kMaxCallTableWords = 1 << 20;

struct CudaPlanCall {
  // Tokens of sequences, or of sources.
  struct Tokens {
    std::vector<TokenId> ids;
    std::vector<int> positions;
    std::vector<int> tables;
    std::vector<CudaAttentionRow> rows;

    int size() const { return static_cast<int>(ids.size()); }
  };

  Tokens tokens;
  std::vector<int> logits_rows;                 // tokens that have logits
  std::vector<std::span<const PageId>> tables;  // one of no pages: null pages
  int stride = 1;                               // of tables

  // Behind an encoder, as in CudaBatch: what each token attends to.
  std::vector<CudaAttentionRow> cross_rows;
  std::vector<int> cross_positions;
  // Whole sources, as in CudaSourceBatch. Source i has table i, whose pages
  // begin at source_pages[i].
  Tokens sources;
  std::vector<int> source_last_positions;  // [sources.size()]
  std::vector<int> cross_tables;           // [sources.size()]
  std::vector<int> source_pages;
  int num_source_pages = 0;
  int source_stride = 1;

  // [tables, stride], filled up with `null_page`.
  std::vector<int> FlatTables(PageId null_page) const;
  // [sources, source_stride]
  std::vector<int> FlatSourceTables() const;
};

class CudaPlanReader {
 public:
  // Calls are within the bounds of the model. `plan` outlives the reader.
  CudaPlanReader(const StepPlan* plan, const CudaCallBounds& bounds,
                 int page_size);

  bool is_done() const { return row_ == plan_.rows.size(); }
  // Takes tokens from where the last call ended, as many as fit. REQUIRES:
  // !is_done().
  CudaPlanCall Next();

 private:
  // Where a row's tokens behind its source begin, and how many of those that
  // are left to be fed are before.
  int SourceEnd() const;
  int NumOfSourceLeft() const;
  // False: the call has no room for it.
  bool AddSource(CudaPlanCall* call);
  bool AddTokens(CudaPlanCall* call);

  const StepPlan& plan_;
  const CudaCallBounds bounds_;
  const int page_size_;
  size_t row_ = 0;
  int num_fed_ = 0;  // of the row
};

}  // namespace espalier
