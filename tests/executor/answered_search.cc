#include "tests/executor/answered_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <variant>

#include "base/status.h"
#include "beam/strategy/make_strategy.h"
#include "exec_request/diverse_choice.h"
#include "kernels/gumbel_topk/gumbel_topk.h"

namespace espalier::testing {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

bool ComesFirst(const Candidate& a, const Candidate& b) {
  return std::tie(a.beam, a.token) < std::tie(b.beam, b.token);
}

std::vector<Candidate> ByBeamAndToken(std::vector<Candidate> candidates) {
  std::ranges::sort(candidates, ComesFirst);
  return candidates;
}

std::string Describe(const Candidate& candidate) {
  return Concat("token ", candidate.token, " of beam ", candidate.beam,
                ", score ", candidate.cum_log_prob);
}

// Returns the ranking of all rows together; null if there is none.
const KeepAcrossRows* AcrossRowsOf(const PlanSelection& selection) {
  const RowSelection* const rows = selection.as_rows();
  return rows == nullptr ? nullptr
                         : std::get_if<KeepAcrossRows>(&rows->ranking);
}

// Returns the number of candidates that are kept in all rows; 0: all.
int NumFirst(const PlanSelection& selection) {
  if (const BeamSelection* beams = selection.as_beams()) {
    return beams->num_kept;
  }
  const KeepAcrossRows* const across_rows = AcrossRowsOf(selection);
  return across_rows == nullptr ? 0 : across_rows->count;
}

// Returns the maxima that the sums of rows are shifted to; or none.
std::span<const double> MaximaOf(const PlanSelection& selection) {
  const KeepAcrossRows* const across_rows = AcrossRowsOf(selection);
  if (across_rows == nullptr) return {};
  return across_rows->maxima;
}

// Checks that candidates of only one of two runs rank last.
class OnlyInOne {
 public:
  // `has`: the run that has them; `lacks`: the other one.
  OnlyInOne(const AnsweredSearch& has, const AnsweredSearch& lacks, size_t step,
            const ScoreTolerance& tolerance)
      : has_(has), lacks_(lacks), step_(step), tolerance_(tolerance) {}

  // The first that does not, else "".
  std::string Judge(const std::vector<Candidate>& candidates) const {
    const PlanSelection& selection = has_.selection(step_);
    const RowSelection* const rows = selection.as_rows();
    if (rows != nullptr &&
        std::holds_alternative<KeepEachBlock>(rows->ranking)) {
      return JudgeDiverse(candidates, std::get<KeepEachBlock>(rows->ranking));
    }
    const int num_first = NumFirst(selection);
    if (num_first == 0) return JudgeRows(candidates);
    const double last = LastOfTheFirst(num_first);
    for (const Candidate& candidate : candidates) {
      const double sum = LeastSum(candidate);
      if (sum <= last) continue;
      return Concat(Describe(candidate),
                    ": it is in one run alone, its sum is ", sum,
                    " or more, the last of the other ", last);
    }
    return "";
  }

 private:
  // Checks rows that each keep their own best.
  std::string JudgeRows(const std::vector<Candidate>& candidates) const {
    for (const Candidate& candidate : candidates) {
      const double last = LastOfTheRow(candidate.beam);
      const double score = candidate.cum_log_prob;
      if (score - tolerance_.Of(score) <= last) continue;
      return Concat(Describe(candidate),
                    ": it is in one run alone, the last of the row in the "
                    "other has ",
                    last);
    }
    return "";
  }

  double LastOfTheRow(int row) const {
    double last = std::numeric_limits<double>::infinity();
    int num_candidates = 0;
    for (const Candidate& candidate : lacks_.candidates(step_)) {
      if (candidate.beam != row) continue;
      last = std::min<double>(last, candidate.cum_log_prob);
      ++num_candidates;
    }
    const bool is_full =
        num_candidates == lacks_.selection(step_).num_candidates();
    return is_full ? last : kNone;
  }

  // Returns the last sum of the other run; kNone if that run has fewer
  // candidates than it may.
  double LastOfTheFirst(size_t num_first) const {
    std::vector<double> sums = lacks_.sums(step_);
    if (num_first == 0 || sums.size() < num_first) return kNone;
    std::ranges::sort(sums, std::greater());
    return sums[num_first - 1];
  }

  // Returns the least possible sum in the run that lacks it. A row of
  // stochastic beams with any children has its highest child, which has the
  // parent's sum.
  double LeastSum(const Candidate& candidate) const {
    const PlanSelection& selection = lacks_.selection(step_);
    const RandomKey key = GumbelKey(selection.params->sampling.seed,
                                    candidate.beam, selection.num_generated);
    const double least = candidate.cum_log_prob -
                         tolerance_.Of(candidate.cum_log_prob) +
                         Gumbel(key, candidate.token);
    const std::span<const double> maxima = MaximaOf(selection);
    if (maxima.empty()) return least;
    const double parent = maxima[candidate.beam];
    const double maximum = lacks_.MaximumOf(step_, candidate.beam);
    return least < maximum ? ShiftToMaximum(least, maximum, parent) : parent;
  }

  // Group by group, until one has chosen other tokens, by which those of later
  // groups are lowered.
  std::string JudgeDiverse(const std::vector<Candidate>& candidates,
                           const KeepEachBlock& kept) const {
    TokenChoices choices, other_choices;
    for (const RowBlock& block : kept.blocks) {
      if (choices != other_choices) return "";
      const auto best = BestOf(has_, block, kept, choices);
      const auto others = BestOf(lacks_, block, kept, choices);
      for (const PenalisedCandidate& ranked : best) {
        const Candidate& candidate = has_.candidates(step_)[ranked.idx];
        if (!std::ranges::binary_search(candidates, candidate, ComesFirst)) {
          continue;
        }
        const double score = ranked.candidate.cum_log_prob;
        const double last = std::ssize(others) < block.count
                                ? kNone
                                : others.back().candidate.cum_log_prob;
        if (score - tolerance_.Of(candidate.cum_log_prob) <= last) continue;
        return Concat(Describe(candidate), ": it is in one run alone, for ",
                      score, ", the last of the other ", last);
      }
      Choose(best, kept, &choices);
      Choose(others, kept, &other_choices);
    }
    return "";
  }

  std::vector<PenalisedCandidate> BestOf(const AnsweredSearch& search,
                                         const RowBlock& block,
                                         const KeepEachBlock& kept,
                                         const TokenChoices& choices) const {
    return BestPenalised(search.candidates(step_), block, choices,
                         kept.penalty);
  }

  void Choose(const std::vector<PenalisedCandidate>& best,
              const KeepEachBlock& kept, TokenChoices* choices) const {
    const PlanSelection& selection = has_.selection(step_);
    int num_chosen = 0;
    for (const auto& [candidate, idx] : best) {
      if (num_chosen == kept.num_chosen) return;
      if (std::ranges::binary_search(selection.eos_token_ids,
                                     candidate.token)) {
        continue;
      }
      ++(*choices)[candidate.token];
      ++num_chosen;
    }
  }

  const AnsweredSearch& has_;
  const AnsweredSearch& lacks_;
  const size_t step_;
  const ScoreTolerance tolerance_;
};

// Decides, candidate by candidate, which differences a filter of drawn beams
// explains.
class FilterBorders {
 public:
  FilterBorders(const GenerationParams& params, const ScoreTolerance& tolerance)
      : params_(params),
        tolerance_(tolerance),
        has_filters_(DrawsAtRandom(params) && HasFilters(params)) {}

  // True if the two scores of a candidate of both runs are possible.
  bool Explain(const Candidate& a, const Candidate& b) {
    const bool is_close = tolerance_.Holds(a.cum_log_prob, b.cum_log_prob);
    if (!has_filters_ || !params_.stochastic) return is_close;
    const double shift = double{b.cum_log_prob} - a.cum_log_prob;
    const double rounding =
        2 * std::max(tolerance_.Of(a.cum_log_prob), tolerance_.Of(shift));
    // A small shift is seen in scores near 0 alone.
    if (!is_close) shifted_rows_.insert(a.beam);
    const auto [first, is_first] = shifts_.emplace(a.beam, shift);
    if (!is_first) return std::abs(shift - first->second) <= rounding;
    return std::abs(shift) <= std::log(2.0) + rounding;
  }
  int num_shifted() const { return static_cast<int>(shifted_rows_.size()); }
  // By how much scores of the row are higher in the second run.
  double ShiftOf(int row) const {
    const auto shift = shifts_.find(row);
    return shift == shifts_.end() ? 0 : shift->second;
  }

  // True if the row's filter may have removed a candidate from the other run,
  // judging by the row's candidates that both runs have.
  bool MayBe(const Candidate& candidate,
             const std::vector<Candidate>& in_both) const {
    if (!has_filters_) return false;
    if (params_.typical_p < 1) return true;  // may keep less likely tokens
    return std::ranges::all_of(in_both, [&](const Candidate& other) {
      return other.beam != candidate.beam ||
             other.cum_log_prob + tolerance_.Of(other.cum_log_prob) >=
                 candidate.cum_log_prob;
    });
  }

 private:
  const GenerationParams& params_;
  const ScoreTolerance tolerance_;
  const bool has_filters_;
  std::map<int, double> shifts_;  // per row, of its first candidate
  std::set<int> shifted_rows_;    // shifted by more than rounding
};

}  // namespace

AnsweredSearch::AnsweredSearch(const PreparedRequest& request,
                               const CandidateLists& steps)
    : params_(request.request.params),
      answers_(steps),
      strategy_(MakeStrategy(params_, request.constraint, request.text)) {
  for (size_t i = 0; i < steps.size() && !strategy_->done(); ++i) {
    Step step = Describe(i);
    step.selection.params = request.selection_params;
    const bool is_of_rows =
        std::ranges::all_of(steps[i], [&](const Candidate& candidate) {
          return candidate.beam >= 0 &&
                 candidate.beam < step.selection.num_rows;
        });
    if (!is_of_rows) return;
    if (DrawsAtRandom(params_)) AddSums(steps[i], &step);
    steps_.push_back(std::move(step));
    SelectionResult answer;
    answer.candidates.assign(steps[i].begin(), steps[i].end());
    if (!strategy_->Advance(answer).ok()) return;
  }
  ended_ = strategy_->done() && steps_.size() == steps.size();
}

AnsweredSearch::Step AnsweredSearch::Describe(size_t step) const {
  Step described;
  strategy_->DescribeSelection(&described.selection);
  described.beams.resize(described.selection.num_rows);
  for (int rank = 0; step > 0 && rank < std::ssize(described.beams); ++rank) {
    strategy_->AppendTokens(rank, &described.beams[rank]);
  }
  return described;
}

void AnsweredSearch::AddSums(const std::vector<Candidate>& candidates,
                             Step* step) const {
  const PlanSelection& selection = step->selection;
  step->maxima.assign(selection.num_rows, kNone);
  for (const Candidate& candidate : candidates) {
    const RandomKey key = GumbelKey(params_.seed.value_or(0), candidate.beam,
                                    selection.num_generated);
    const double sum = candidate.cum_log_prob + Gumbel(key, candidate.token);
    double& maximum = step->maxima[candidate.beam];
    maximum = std::max(maximum, sum);
    step->sums.push_back(sum);
  }
  const std::span<const double> parents = MaximaOf(selection);
  if (parents.empty()) return;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int row = candidates[i].beam;
    step->sums[i] =
        ShiftToMaximum(step->sums[i], step->maxima[row], parents[row]);
  }
}

std::string AnsweredSearch::DifferenceFrom(const Result& result) const {
  if (!ended_) {
    return Concat("its answers do not end the search in ", answers_.size(),
                  " steps");
  }
  const std::vector<Hypothesis> hypotheses = strategy_->Hypotheses();
  if (result.hypotheses.size() != hypotheses.size()) {
    return Concat(result.hypotheses.size(), " hypotheses, its answers give ",
                  hypotheses.size());
  }
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const Hypothesis& given = result.hypotheses[i];
    const Hypothesis& led = hypotheses[i];
    const bool same_tokens = given.tokens == led.tokens;
    if (same_tokens && given.score == led.score &&
        given.cum_log_prob == led.cum_log_prob &&
        given.finish_reason == led.finish_reason) {
      continue;
    }
    return Concat("hypothesis ", i, ": score ", given.score, " of sum ",
                  given.cum_log_prob, ", ", NameOf(given.finish_reason),
                  ", its answers give ", same_tokens ? "" : "other tokens, ",
                  led.score, " of ", led.cum_log_prob, ", ",
                  NameOf(led.finish_reason));
  }
  if (result.threshold != strategy_->threshold()) {
    return Concat("threshold ", result.threshold.value_or(kNone),
                  ", its answers give ",
                  strategy_->threshold().value_or(kNone));
  }
  return "";
}

double ScoreTolerance::Of(double score) const {
  return relative * std::max(std::abs(score), least_score);
}

bool ScoreTolerance::Holds(double a, double b) const {
  return a == b || std::abs(a - b) <= std::max(Of(a), Of(b));
}

std::string CompareCandidates(const AnsweredSearch& expected,
                              const AnsweredSearch& actual, size_t step,
                              const ScoreTolerance& tolerance, StepTies* ties) {
  const std::vector<Candidate> a = ByBeamAndToken(expected.candidates(step));
  const std::vector<Candidate> b = ByBeamAndToken(actual.candidates(step));
  std::vector<Candidate> only_a, only_b;
  std::ranges::set_difference(a, b, std::back_inserter(only_a), ComesFirst);
  std::ranges::set_difference(b, a, std::back_inserter(only_b), ComesFirst);
  std::vector<Candidate> both_a, both_b;
  std::ranges::set_intersection(a, b, std::back_inserter(both_a), ComesFirst);
  std::ranges::set_intersection(b, a, std::back_inserter(both_b), ComesFirst);
  FilterBorders borders(expected.params(), tolerance);
  for (size_t i = 0; i < both_a.size(); ++i) {
    if (borders.Explain(both_a[i], both_b[i])) continue;
    return Concat(Describe(both_b[i]), ", expected ", both_a[i].cum_log_prob);
  }
  ties->num_shifted += borders.num_shifted();
  const auto judge = [&](const OnlyInOne& one,
                         const std::vector<Candidate>& candidates,
                         const std::vector<Candidate>& in_both, double sign) {
    std::vector<Candidate> of_rank;
    for (Candidate candidate : candidates) {
      const bool may_be_filtered = borders.MayBe(candidate, in_both);
      // Its score in the other run.
      candidate.cum_log_prob +=
          static_cast<float>(sign * borders.ShiftOf(candidate.beam));
      const bool is_filtered =
          may_be_filtered && !one.Judge({candidate}).empty();
      if (!is_filtered) of_rank.push_back(candidate);
      ++(is_filtered ? ties->num_filtered : ties->num_others);
    }
    return one.Judge(of_rank);
  };
  std::string difference =
      judge({expected, actual, step, tolerance}, only_a, both_a, 1);
  if (!difference.empty()) return "missing " + difference;
  difference = judge({actual, expected, step, tolerance}, only_b, both_b, -1);
  return difference.empty() ? "" : "unexpected " + difference;
}

}  // namespace espalier::testing
