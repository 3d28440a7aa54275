// CandidateFilter: drops candidates of rows that a group can never choose, by
// what the selection says is kept (RowRanking). Executors then send, and the
// strand sorts, a few candidates per beam instead of a few per pair of beams.
//
// A row with noise comes in falling order of value + noise (step_plan.h). The
// scan of a row therefore ends at the first candidate that is too low: in k
// rows of k + 1 candidates, noise is computed for only a few per row.
//
// The remaining candidates keep their order, by row and within rows, so that a
// later ranking breaks ties as it would with all candidates.
//
// Thread safety: rows may be added by several threads.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include "exec_request/step_plan.h"

namespace espalier {

class CandidateFilter {
 public:
  // REQUIRES: `selection` is a RowSelection, and outlives this.
  explicit CandidateFilter(const PlanSelection& selection);

  // Returns a lower bound for `row`, which never falls: candidates are dropped
  // unless value + noise (kernels/gumbel_topk/gumbel_topk.h) is above it.
  double Above(int row) const;

  // Adds the candidates of one row, in its order. A row with a NaN is kept
  // whole. Throws std::bad_alloc.
  // REQUIRES: each row comes once, candidate.beam is the row.
  void Add(int row, std::vector<Candidate> candidates);

  // Moves out the remaining candidates of all rows.
  std::vector<Candidate> Take();

 private:
  struct Row {
    std::vector<Candidate> candidates;
    std::vector<double> sums;  // [candidates]; empty: keep all
    int highest = -1;          // index of the one that determines the shift
  };

  bool has_maxima() const {
    return across_rows_ != nullptr && !across_rows_->maxima.empty();
  }
  // Returns cum_log_prob + noise of the first candidates. The strategy can
  // choose none of the others, and none of them is the highest of a row in
  // which it can choose some. Empty: some sum is NaN.
  std::vector<double> SumsOf(int row,
                             std::span<const Candidate> candidates) const;
  // True if SumsOf() can omit all candidates after one of this sum.
  bool EndsAfter(int row, double sum, double maximum) const;
  // Shifts the sums of a row's candidates; returns the index of the highest.
  size_t Shift(int row, std::vector<double>* sums) const;
  // Raises floor_ if `sums` are among the highest that are kept.
  void RaiseFloor(std::span<const double> sums);

  const PlanSelection& selection_;
  const RowSelection& choice_;
  const KeepAcrossRows* const across_rows_;  // null: another ranking
  std::vector<Row> rows_;
  // At least KeepAcrossRows::count sums are no lower than this.
  std::atomic<double> floor_;
  std::mutex mutex_;
  std::vector<double> first_sums_;  // guarded by mutex_
};

}  // namespace espalier
