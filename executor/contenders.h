// Contenders: of the candidates that the rows of a group give, those that the
// group's strategy can take, by what it said of its ranking (RowRanking).
// Executors that leave out the others send, and the strand sorts, a few
// candidates for each beam instead of a few for each pair of beams.
//
//   sampled     the first of all by cum_log_prob + noise
//   stochastic  the first of all by that sum, shifted to the parent's; and the
//               highest of each row that has any, which shifts its others
//   diverse     what each group can choose when those before it have chosen
//
// A row with noise comes in falling order of value + noise (step_plan.h). So
// what stands after a candidate too low to be taken is not looked at: of k
// rows of k + 1 candidates, noise is computed for a few of each.
//
// What is left is in the order of rows, and within rows as they came, so that
// whoever ranks it again breaks ties as if nothing had been left out.
//
// Thread safety: rows may be added by several threads.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include "exec_request/step_plan.h"

namespace espalier {

class Contenders {
 public:
  // `selection` is of kRows, and outlives this.
  explicit Contenders(const PlanSelection& selection);

  // Candidates of `row` whose value + noise (kernels/gumbel_topk/gumbel_topk.h)
  // is not above this cannot be taken. Never falls.
  double Above(int row) const;

  // Takes the candidates of one row, in its order. A row of which something is
  // no number stays as it is. Throws std::bad_alloc.
  // REQUIRES: each row comes once, candidate.beam is the row.
  void Add(int row, std::vector<Candidate> candidates);

  // What can be taken of all rows. Leaves nothing behind.
  std::vector<Candidate> Take();

 private:
  struct Row {
    std::vector<Candidate> candidates;
    std::vector<double> sums;  // [candidates] or empty: all can be taken
    int highest = -1;          // which shifts the others, if they are shifted
  };

  bool by_sums() const { return ranking_.num_first > 0; }
  // cum_log_prob + noise, of the first candidates: none of the others can be
  // taken, nor is one the highest of a row of which some can. Empty: some sum
  // is no number.
  std::vector<double> SumsOf(int row,
                             std::span<const Candidate> candidates) const;
  // Whether that holds of all that stand after a candidate of this sum.
  bool EndsAfter(int row, double sum, double maximum) const;
  // Shifts the sums of a row's candidates; returns which was the highest.
  size_t Shift(int row, std::vector<double>* sums) const;
  // Learns from more sums how high the first ones are.
  void RaiseFloor(std::span<const double> sums);

  const PlanSelection& selection_;
  const RowRanking& ranking_;
  std::vector<Row> rows_;
  // At least num_first sums are as high.
  std::atomic<double> floor_;
  std::mutex mutex_;
  std::vector<double> first_sums_;  // guarded by mutex_
};

}  // namespace espalier
