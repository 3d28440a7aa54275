#include "executor/cuda/batch/cuda_plan_call.h"

#include <algorithm>
#include <cstdint>

namespace espalier {

std::vector<int> CudaPlanCall::FlatTables(PageId null_page) const {
  std::vector<int> flat(tables.size() * stride, null_page.value);
  for (size_t i = 0; i < tables.size(); ++i) {
    for (size_t page = 0; page < tables[i].size(); ++page) {
      flat[i * stride + page] = tables[i][page].value;
    }
  }
  return flat;
}

CudaPlanCall CudaPlanReader::Next() {
  CudaPlanCall call;
  for (; !is_done(); ++row_, num_fed_ = 0) {
    if (!AddTokens(&call)) break;
  }
  return call;
}

bool CudaPlanReader::AddTokens(CudaPlanCall* call) {
  const PlanRow& row = plan_.rows[row_];
  const std::span<const PageId> pages = plan_.row_pages(row_);
  const int stride = std::max(call->stride, static_cast<int>(pages.size()));
  const int64_t num_words = (std::ssize(call->tables) + 1) * int64_t{stride};
  if (!call->tables.empty() && num_words > kMaxCallTableWords) return false;
  // Tokens before the first that has logits, and as many of those as fit.
  const int num_before =
      std::max(row.num_tokens - row.num_logits - num_fed_, 0);
  const int num_logits_left =
      bounds_.max_logits - static_cast<int>(call->logits_rows.size());
  const int count =
      std::min({row.num_tokens - num_fed_, num_before + num_logits_left,
                bounds_.max_tokens - call->num_tokens()});
  if (count == 0) return false;
  const int first_query = call->num_tokens();
  const int first = row.first_position + num_fed_;
  const int table = static_cast<int>(call->tables.size());
  call->stride = stride;
  call->tables.push_back(pages);
  call->attention_rows.push_back({.first_query = first_query,
                                  .num_queries = count,
                                  .table = table,
                                  .max_positions = first + count});
  for (int i = 0; i < count; ++i) {
    if (i >= num_before) call->logits_rows.push_back(first_query + i);
    call->tokens.push_back(plan_.row_tokens(row)[num_fed_ + i]);
    call->positions.push_back(first + i);
    call->token_tables.push_back(table);
  }
  num_fed_ += count;
  return num_fed_ == row.num_tokens;
}

}  // namespace espalier
