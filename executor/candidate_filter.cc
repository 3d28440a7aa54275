#include "executor/candidate_filter.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>

#include "exec_request/diverse_choice.h"
#include "kernels/gumbel_topk/gumbel.h"
#include "kernels/gumbel_topk/gumbel_topk.h"

namespace espalier {
namespace {

constexpr double kNoFloor = -std::numeric_limits<double>::infinity();

// A candidate and its place among all rows.
struct Place {
  double sum;
  int row;
  int idx;  // in the row

  // Orders by rank: higher sums first, ties by place.
  bool operator<(const Place& other) const {
    return std::tuple(-sum, row, idx) <
           std::tuple(-other.sum, other.row, other.idx);
  }
};

}  // namespace

CandidateFilter::CandidateFilter(const PlanSelection& selection)
    : selection_(selection),
      choice_(*selection.as_rows()),
      across_rows_(std::get_if<KeepAcrossRows>(&choice_.ranking)),
      rows_(selection.num_rows),
      floor_(kNoFloor) {}

// A candidate's cumulative score is rounded to float32 once, by less than 2^-24
// of itself. If its sum reaches the floor, the score is less than 36.7 below
// the floor, because noise is at most 36.7.
double CandidateFilter::Above(int row) const {
  const double floor = floor_.load(std::memory_order_relaxed);
  if (floor == kNoFloor || has_maxima()) return kNoFloor;
  const double cum = selection_.cum_log_probs[row];
  const double slack = 0x1p-22 * (std::abs(cum) + std::abs(floor) + 64);
  return floor - cum - slack;
}

std::vector<double> CandidateFilter::SumsOf(
    int row, std::span<const Candidate> candidates) const {
  const RandomKey key = GumbelKey(selection_.params->sampling.seed, row,
                                  selection_.num_generated);
  std::vector<double> sums;
  double maximum = kNoFloor;
  for (const Candidate& candidate : candidates) {
    const double sum = candidate.cum_log_prob + Gumbel(key, candidate.token);
    if (std::isnan(sum)) return {};
    sums.push_back(sum);
    maximum = std::max(maximum, sum);
    if (EndsAfter(row, sum, maximum)) break;
  }
  return sums;
}

// Candidates are ordered by value + noise, while sums use cum_log_prob, which
// is rounded to float32 once, by less than 2^-24 of itself, and is within 36.7
// of the sum, because noise is at most 36.7. A later sum can therefore be
// higher only by less than the slack below, which includes differences of noise
// between devices. ShiftToMaximum keeps the order except for rounding of
// double. If the maximum may come later, the parent's sum itself is too low.
bool CandidateFilter::EndsAfter(int row, double sum, double maximum) const {
  const double floor = floor_.load(std::memory_order_relaxed);
  if (floor == kNoFloor) return false;
  const double most = sum + 0x1p-22 * (std::abs(sum) + 64);
  if (!has_maxima()) return most < floor;
  const double parent = across_rows_->maxima[row];
  const double slack =
      0x1p-40 * (std::abs(most) + std::abs(maximum) + std::abs(parent) + 64);
  return ShiftToMaximum(most, maximum, parent) + slack < floor;
}

size_t CandidateFilter::Shift(int row, std::vector<double>* sums) const {
  const auto highest = std::ranges::max_element(*sums);
  const size_t idx = highest - sums->begin();
  const double maximum = *highest;
  for (double& sum : *sums) {
    sum = ShiftToMaximum(sum, maximum, across_rows_->maxima[row]);
  }
  return idx;
}

void CandidateFilter::Add(int row, std::vector<Candidate> candidates) {
  Row& added = rows_[row];
  std::vector<double> sums;
  // A row of kNotANumber ends the request, so it is kept.
  if (across_rows_ != nullptr && !candidates.empty() &&
      candidates[0].token >= 0) {
    sums = SumsOf(row, candidates);
  }
  if (sums.empty()) {
    added.candidates = std::move(candidates);
    return;
  }
  const bool shifts = has_maxima();
  const size_t highest = shifts ? Shift(row, &sums) : sums.size();
  RaiseFloor(sums);
  const double floor = floor_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i] < floor && i != highest) continue;
    if (i == highest) added.highest = static_cast<int>(added.sums.size());
    added.candidates.push_back(candidates[i]);
    added.sums.push_back(sums[i]);
  }
}

void CandidateFilter::RaiseFloor(std::span<const double> sums) {
  const size_t num_first = across_rows_->count;
  const double floor = floor_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  std::ranges::copy_if(sums, std::back_inserter(first_sums_),
                       [&](double sum) { return sum >= floor; });
  if (first_sums_.size() < 2 * num_first) return;
  const auto last = first_sums_.begin() + (num_first - 1);
  std::nth_element(first_sums_.begin(), last, first_sums_.end(),
                   std::greater<>());
  first_sums_.resize(num_first);
  floor_.store(first_sums_.back(), std::memory_order_relaxed);
}

std::vector<Candidate> CandidateFilter::Take() {
  std::vector<Candidate> taken;
  const auto take_all = [&](const Row& row) {
    taken.insert(taken.end(), row.candidates.begin(), row.candidates.end());
  };
  if (across_rows_ == nullptr) {
    for (const Row& row : rows_) take_all(row);
    const auto* const blocks = std::get_if<KeepEachBlock>(&choice_.ranking);
    if (blocks == nullptr) return taken;
    return KeepChoosable(selection_, *blocks, std::move(taken));
  }
  const double floor = floor_.load(std::memory_order_relaxed);
  std::vector<Place> places;
  for (int row = 0; row < std::ssize(rows_); ++row) {
    for (int i = 0; i < std::ssize(rows_[row].sums); ++i) {
      const double sum = rows_[row].sums[i];
      if (sum >= floor) places.push_back({sum, row, i});
    }
  }
  const size_t num_first = across_rows_->count;
  if (places.size() > num_first) {
    std::nth_element(places.begin(), places.begin() + num_first, places.end());
    places.resize(num_first);
  }
  std::vector<std::vector<bool>> is_first(rows_.size());
  for (const auto& [sum, row, idx] : places) {
    is_first[row].resize(rows_[row].sums.size());
    is_first[row][idx] = true;
  }
  for (size_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    if (row.sums.empty()) take_all(row);
    if (is_first[r].empty()) continue;
    if (row.highest >= 0) is_first[r][row.highest] = true;
    for (size_t i = 0; i < row.candidates.size(); ++i) {
      if (is_first[r][i]) taken.push_back(row.candidates[i]);
    }
  }
  rows_.clear();
  return taken;
}

}  // namespace espalier
