// CudaPlanCall: some of a plan's rows as one call of a CudaModel, in vectors of
// the host, and CudaPlanReader, which divides a plan into such calls.
//
//   CudaPlanReader reader(&plan, bounds);
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
#include "kernels/attention/cuda_attention_plan.h"

namespace espalier {

// Maximum number of page ids in a call, unless one sequence alone has more.
inline constexpr int kMaxCallTableWords = 1 << 20;

struct CudaPlanCall {
  std::vector<TokenId> tokens;
  std::vector<int> positions;     // by token
  std::vector<int> token_tables;  // by token
  std::vector<CudaAttentionRow> attention_rows;
  std::vector<int> logits_rows;  // tokens that have logits
  std::vector<std::span<const PageId>> tables;
  int stride = 1;  // page ids per table

  int num_tokens() const { return static_cast<int>(tokens.size()); }

  // Returns [tables, stride] page ids, padded with `null_page`.
  std::vector<int> FlatTables(PageId null_page) const;
};

class CudaPlanReader {
 public:
  // Calls are within the bounds of the model. `plan` outlives the reader.
  // REQUIRES: rows have no sources.
  CudaPlanReader(const StepPlan* plan, const CudaCallBounds& bounds)
      : plan_(*plan), bounds_(bounds) {}

  bool is_done() const { return row_ == plan_.rows.size(); }
  // Returns a call with the next tokens of the plan, as many as fit.
  // REQUIRES: !is_done().
  CudaPlanCall Next();

 private:
  // Adds tokens of the current row; false if the call has no room for all.
  bool AddTokens(CudaPlanCall* call);

  const StepPlan& plan_;
  const CudaCallBounds bounds_;
  size_t row_ = 0;
  int num_fed_ = 0;  // tokens of the current row in earlier calls
};

}  // namespace espalier
