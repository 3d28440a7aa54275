#include "executor/cuda/cuda_plan_call.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

// The table of null pages, which is the first of a call of a model with an
// encoder.
constexpr int kNullTable = 0;

const PlanSource& SourceOf(const StepPlan& plan, size_t row) {
  const auto source = std::ranges::lower_bound(
      plan.sources, static_cast<int>(row), {}, &PlanSource::row);
  CHECK(source != plan.sources.end() && source->row == static_cast<int>(row))
      << "row " << row << " feeds its source, which the plan does not have";
  return *source;
}

bool HasRoomForTables(int64_t num_tables, int stride) {
  return num_tables * stride <= kMaxCallTableWords;
}

// Returns its index.
int AddTable(std::span<const PageId> pages, CudaPlanCall* call) {
  call->stride = std::max(call->stride, static_cast<int>(pages.size()));
  call->tables.push_back(pages);
  return static_cast<int>(call->tables.size()) - 1;
}

// Beams of one source are one row: all of it is seen from each, and so is read
// once for them.
void AddCrossRow(std::span<const PageId> pages, int source_length,
                 int first_query, int num_queries, CudaPlanCall* call) {
  call->cross_positions.insert(call->cross_positions.end(), num_queries,
                               source_length - 1);
  std::vector<CudaAttentionRow>& rows = call->cross_rows;
  if (!rows.empty() && rows.back().max_positions == source_length &&
      std::ranges::equal(call->tables[rows.back().table], pages)) {
    rows.back().num_queries += num_queries;
    return;
  }
  rows.push_back({.first_query = first_query,
                  .num_queries = num_queries,
                  .table = AddTable(pages, call),
                  .max_positions = source_length,
                  .sees_all = 1});
}

}  // namespace

std::vector<int> CudaPlanCall::FlatTables(PageId null_page) const {
  std::vector<int> flat(tables.size() * stride, null_page.value);
  for (size_t i = 0; i < tables.size(); ++i) {
    for (size_t page = 0; page < tables[i].size(); ++page) {
      flat[i * stride + page] = tables[i][page].value;
    }
  }
  return flat;
}

std::vector<int> CudaPlanCall::FlatSourceTables() const {
  std::vector<int> flat(source_pages.size() * source_stride);
  for (size_t i = 0; i < source_pages.size(); ++i) {
    const int end =
        i + 1 < source_pages.size() ? source_pages[i + 1] : num_source_pages;
    for (int page = source_pages[i]; page < end; ++page) {
      flat[i * source_stride + (page - source_pages[i])] = page;
    }
  }
  return flat;
}

CudaPlanReader::CudaPlanReader(const StepPlan* plan,
                               const CudaCallBounds& bounds, int page_size)
    : plan_(*plan), bounds_(bounds), page_size_(page_size) {}

CudaPlanCall CudaPlanReader::Next() {
  CudaPlanCall call;
  if (bounds_.max_source_pages > 0) AddTable({}, &call);
  for (; !is_done(); ++row_, num_fed_ = 0) {
    if (NumOfSourceLeft() > 0 && !AddSource(&call)) break;
    if (num_fed_ < plan_.rows[row_].num_tokens && !AddTokens(&call)) break;
  }
  return call;
}

int CudaPlanReader::SourceEnd() const {
  return NumPages(plan_.rows[row_].source_length, page_size_) * page_size_;
}

int CudaPlanReader::NumOfSourceLeft() const {
  const PlanRow& row = plan_.rows[row_];
  return std::clamp(SourceEnd() - row.first_position - num_fed_, 0,
                    row.num_tokens - num_fed_);
}

bool CudaPlanReader::AddSource(CudaPlanCall* call) {
  const PlanRow& row = plan_.rows[row_];
  const std::vector<TokenId>& ids = *SourceOf(plan_, row_).tokens;
  const int length = static_cast<int>(ids.size());
  const auto num_pages = static_cast<int>(NumPages(length, page_size_));
  const int table = static_cast<int>(call->source_pages.size());
  const int stride = std::max(call->source_stride, num_pages);
  const auto pages = plan_.row_pages(row_);
  // The row may have fewer pages so far than its source takes, of whose other
  // positions the table of null pages has to have pages then.
  const int cross_stride = std::max(call->stride, num_pages);
  const bool is_first = call->tables.size() == 1;
  if (call->num_source_pages + num_pages > bounds_.max_source_pages ||
      call->sources.size() + length > bounds_.max_tokens ||
      (!is_first && !HasRoomForTables(table + 1, stride)) ||
      (!is_first &&
       !HasRoomForTables(std::ssize(call->tables) + 1, cross_stride))) {
    CHECK(!is_first) << "a source of " << length << " tokens";
    return false;
  }
  call->stride = cross_stride;
  const int fed_begin = row.first_position + num_fed_;
  num_fed_ += NumOfSourceLeft();
  const int fed_end = row.first_position + num_fed_;
  const int cross_table =
      AddTable(pages.first(std::min<size_t>(pages.size(), num_pages)), call);
  call->sources.rows.push_back({.first_query = call->sources.size(),
                                .num_queries = length,
                                .table = table,
                                .max_positions = length,
                                .sees_all = 1});
  for (int i = 0; i < length; ++i) {
    call->sources.ids.push_back(ids[i]);
    call->sources.positions.push_back(i);
    call->sources.tables.push_back(table);
    call->source_last_positions.push_back(length - 1);
    const bool is_fed = i >= fed_begin && i < fed_end;
    call->cross_tables.push_back(is_fed ? cross_table : kNullTable);
  }
  call->source_pages.push_back(call->num_source_pages);
  call->num_source_pages += num_pages;
  call->source_stride = stride;
  return true;
}

// False too where some of the row's tokens are left.
bool CudaPlanReader::AddTokens(CudaPlanCall* call) {
  const PlanRow& row = plan_.rows[row_];
  const std::span<const PageId> pages = plan_.row_pages(row_);
  const int source_end = SourceEnd();
  const size_t num_source_pages = source_end / page_size_;
  const int stride =
      std::max(call->stride, static_cast<int>(pages.size() - num_source_pages));
  // It may have its source's table and that of null pages before.
  const bool is_first = call->tables.size() <= 2;
  if (!is_first && !HasRoomForTables(std::ssize(call->tables) + 2, stride)) {
    return false;
  }
  // Tokens before the first that has logits, and as many of those as fit.
  const int num_before =
      std::max(row.num_tokens - row.num_logits - num_fed_, 0);
  const int num_logits_left =
      bounds_.max_logits - static_cast<int>(call->logits_rows.size());
  const int count =
      std::min({row.num_tokens - num_fed_, num_before + num_logits_left,
                bounds_.max_tokens - call->tokens.size()});
  if (count == 0) return false;
  const int first_query = call->tokens.size();
  const int first = row.first_position + num_fed_ - source_end;
  const int table = AddTable(pages.subspan(num_source_pages), call);
  call->tokens.rows.push_back({.first_query = first_query,
                               .num_queries = count,
                               .table = table,
                               .max_positions = first + count});
  if (row.source_length > 0) {
    AddCrossRow(pages.first(num_source_pages), row.source_length, first_query,
                count, call);
  }
  for (int i = 0; i < count; ++i) {
    if (i >= num_before) call->logits_rows.push_back(first_query + i);
    call->tokens.ids.push_back(plan_.row_tokens(row)[num_fed_ + i]);
    call->tokens.positions.push_back(first + i);
    call->tokens.tables.push_back(table);
  }
  num_fed_ += count;
  return num_fed_ == row.num_tokens;
}

}  // namespace espalier
