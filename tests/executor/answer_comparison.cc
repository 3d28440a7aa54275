#include "tests/executor/answer_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "base/status.h"
#include "tests/executor/answered_search.h"

namespace espalier::testing {
namespace {

// Absolute tolerance of log-probabilities.
constexpr double kLogProbTolerance = 2e-4;
// Largest share of a request's samples that borders between tokens may change.
constexpr double kOtherSamples = 0.1;
// As sums and noise may cancel, it does not go to 0 with the score.
constexpr ScoreTolerance kTolerance = {.relative = 1e-4, .least_score = 0.5};

bool Close(double a, double b) { return kTolerance.Holds(a, b); }

// By token, then by falling score.
bool TokenComesFirst(const Candidate& a, const Candidate& b) {
  if (a.token != b.token) return a.token < b.token;
  return a.cum_log_prob > b.cum_log_prob;
}

std::vector<Candidate> ByToken(std::vector<Candidate> candidates) {
  std::ranges::sort(candidates, TokenComesFirst);
  return candidates;
}

// Candidates of either that are not in the other, of whatever beam.
std::vector<Candidate> Unmatched(const std::vector<Candidate>& expected,
                                 const std::vector<Candidate>& actual) {
  const std::vector<Candidate> a = ByToken(expected);
  const std::vector<Candidate> b = ByToken(actual);
  std::vector<Candidate> unmatched;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const bool in_both = i < a.size() && j < b.size();
    if (in_both && a[i].token == b[j].token &&
        Close(a[i].cum_log_prob, b[j].cum_log_prob)) {
      ++i, ++j;
      continue;
    }
    const bool a_first = in_both ? TokenComesFirst(a[i], b[j]) : i < a.size();
    unmatched.push_back(a_first ? a[i++] : b[j++]);
  }
  return unmatched;
}

template <typename T, typename Score>
std::vector<double> Scores(const std::vector<T>& values, const Score& score) {
  std::vector<double> scores;
  for (const T& value : values) scores.push_back(score(value));
  std::ranges::sort(scores);
  return scores;
}

template <typename T, typename Score>
bool ScoresAreClose(const std::vector<T>& a, const std::vector<T>& b,
                    const Score& score) {
  return std::ranges::equal(Scores(a, score), Scores(b, score), Close);
}

bool SameOrder(const std::vector<Candidate>& a,
               const std::vector<Candidate>& b) {
  return std::ranges::equal(a, b, [](const Candidate& x, const Candidate& y) {
    return x.beam == y.beam && x.token == y.token;
  });
}

std::string CompareLogProbs(const std::vector<TokenLogProb>& a,
                            const std::vector<TokenLogProb>& b) {
  if (a.size() != b.size()) {
    return Concat(b.size(), " log-probabilities, expected ", a.size());
  }
  const auto near = [](double x, double y) {
    return x == y || std::abs(x - y) <= kLogProbTolerance;
  };
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same =
        a[i].token == b[i].token && near(a[i].log_prob, b[i].log_prob) &&
        std::abs(a[i].rank - b[i].rank) <= 2 + a[i].rank / 50 &&
        std::ranges::equal(a[i].best, b[i].best,
                           [&](const TokenScore& x, const TokenScore& y) {
                             return near(x.log_prob, y.log_prob);
                           });
    if (same) continue;
    return Concat("log-probability ", i, " of token ", b[i].token, ": ",
                  b[i].log_prob, ", rank ", b[i].rank, ", expected of token ",
                  a[i].token, " ", a[i].log_prob, ", rank ", a[i].rank);
  }
  return "";
}

// Names the first difference between scores of continuations; "" if equal.
std::string CompareContinuations(const Result& expected, const Result& actual) {
  const auto& a = expected.continuations;
  const auto& b = actual.continuations;
  if (a.size() != b.size() || !b.empty() != actual.hypotheses.empty()) {
    return Concat(b.size(), " continuations and ", actual.hypotheses.size(),
                  " hypotheses, expected ", a.size(), " and none");
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const auto near = [](double x, double y) {
      return x == y || std::abs(x - y) <= kLogProbTolerance;
    };
    const auto same_rank = [](int x, int y) {
      return std::abs(x - y) <= 2 + x / 50;
    };
    const bool same =
        a[i].tokens == b[i].tokens &&
        std::ranges::equal(a[i].log_probs, b[i].log_probs, near) &&
        std::ranges::equal(a[i].ranks, b[i].ranks, same_rank) &&
        b[i].is_greedy ==
            std::ranges::all_of(b[i].ranks, [](int r) { return r == 1; });
    if (same) continue;
    return Concat("continuation ", i, " has ", b[i].cum_log_prob, ", expected ",
                  a[i].cum_log_prob);
  }
  return "";
}

std::string Describe(const Hypothesis& hypothesis) {
  std::string tokens;
  for (const TokenId token : hypothesis.tokens) {
    tokens += Concat(tokens.empty() ? "" : " ", token);
  }
  return Concat("hypothesis [", tokens, "]: score ", hypothesis.score,
                " of sum ", hypothesis.cum_log_prob);
}

// Result of matching two results.
struct Matched {
  std::string difference;    // between hypotheses of equal tokens
  std::string first_other;   // hypothesis of one run only
  int num_others = 0;        // hypotheses of the first run only
  int num_other_scores = 0;  // where scores may be others
};

// Compares hypotheses of equal tokens. Scores may differ where rounding is
// amplified.
std::string CompareHypotheses(const Hypothesis& a, const Hypothesis& b,
                              bool scores_may_differ, int* num_other_scores) {
  const bool same_score = Close(a.score, b.score);
  *num_other_scores += same_score ? 0 : 1;
  if ((!same_score && !scores_may_differ) ||
      !Close(a.cum_log_prob, b.cum_log_prob)) {
    return Concat(Describe(b), ", expected ", a.score, " of ", a.cum_log_prob);
  }
  if (a.finish_reason != b.finish_reason) {
    return Concat(Describe(b), ", ", NameOf(b.finish_reason), ", expected ",
                  NameOf(a.finish_reason));
  }
  const std::string difference = CompareLogProbs(a.logprobs, b.logprobs);
  return difference.empty() ? "" : Concat(Describe(b), ", ", difference);
}

std::vector<Hypothesis> ByTokens(std::vector<Hypothesis> hypotheses) {
  std::ranges::sort(hypotheses, [](const Hypothesis& a, const Hypothesis& b) {
    if (a.tokens != b.tokens) return a.tokens < b.tokens;
    return a.score > b.score;
  });
  return hypotheses;
}

Matched MatchHypotheses(const Result& expected, const Result& actual,
                        bool scores_may_differ = false) {
  const std::vector<Hypothesis> a = ByTokens(expected.hypotheses);
  const std::vector<Hypothesis> b = ByTokens(actual.hypotheses);
  Matched matched;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i].tokens == b[j].tokens) {
      matched.difference = CompareHypotheses(a[i++], b[j++], scores_may_differ,
                                             &matched.num_other_scores);
      if (!matched.difference.empty()) return matched;
      continue;
    }
    const bool is_first =
        j == b.size() || (i < a.size() && a[i].tokens < b[j].tokens);
    if (matched.first_other.empty()) {
      matched.first_other = Concat(is_first ? "missing " : "unexpected ",
                                   Describe(is_first ? a[i] : b[j]));
    }
    matched.num_others += is_first ? 1 : 0;
    ++(is_first ? i : j);
  }
  return matched;
}

std::string CompareSamples(const GenerationParams& params,
                           const AnsweredRequest& expected,
                           const AnsweredRequest& actual,
                           AnswerCounts* counts) {
  const int count = static_cast<int>(expected.result.hypotheses.size());
  const Matched matched = MatchHypotheses(expected.result, actual.result);
  const int num_others = matched.num_others;
  ++counts->num_sampled;
  if (!matched.difference.empty()) return matched.difference;
  if (std::ssize(actual.result.hypotheses) != count) {
    return Concat(actual.result.hypotheses.size(), " samples, expected ",
                  count);
  }
  if (num_others > 2 + kOtherSamples * count) {
    if (!HasFilters(params)) {
      return Concat(num_others, " of ", count, " samples are others");
    }
    ++counts->num_shifted;
    return "";
  }
  counts->num_samples += count;
  counts->num_other_samples += num_others;
  if (count >= 100) {
    counts->most_other_samples = std::max(
        counts->most_other_samples, static_cast<double>(num_others) / count);
  }
  return "";
}

bool AreEmptyFrom(size_t step, const CandidateLists& steps) {
  return std::all_of(steps.begin() + step, steps.end(),
                     [](const auto& candidates) { return candidates.empty(); });
}

// Compares searches that take the best candidates of all rows together: their
// results are in order and show every tie.
std::string CompareBestFirst(const AnsweredRequest& expected,
                             const AnsweredRequest& actual,
                             AnswerCounts* counts) {
  const auto score = [](const auto& scored) {
    if constexpr (requires { scored.score; }) {
      return scored.score;
    } else {
      return scored.cum_log_prob;
    }
  };
  const size_t num_steps = std::min(expected.steps.size(), actual.steps.size());
  bool changed_places = false;
  for (size_t step = 0; step < num_steps; ++step) {
    const std::vector<Candidate>& a = expected.steps[step];
    const std::vector<Candidate>& b = actual.steps[step];
    // The search has ended before: tokens verified in one step may extend
    // beyond the end.
    if (AreEmptyFrom(step, expected.steps) ||
        AreEmptyFrom(step, actual.steps)) {
      break;
    }
    const std::vector<Candidate> unmatched = Unmatched(a, b);
    if (!unmatched.empty()) {
      const bool is_near = ScoresAreClose(a, b, score);
      if (!is_near && !changed_places) {
        return Concat("other beams from step ", step, " of ",
                      expected.steps.size(), " on: ", unmatched.size(),
                      " are in one run alone, among them token ",
                      unmatched[0].token, " of beam ", unmatched[0].beam,
                      ", score ", unmatched[0].cum_log_prob);
      }
      ++(is_near ? counts->num_near_ties : counts->num_late_ties);
      return "";
    }
    changed_places = changed_places || !SameOrder(a, b);
  }
  const Matched matched = MatchHypotheses(expected.result, actual.result);
  if (!matched.difference.empty()) return matched.difference;
  if (matched.first_other.empty()) return "";
  const bool is_near = ScoresAreClose(expected.result.hypotheses,
                                      actual.result.hypotheses, score);
  if (!is_near && !changed_places) return matched.first_other;
  ++(is_near ? counts->num_near_ties : counts->num_late_ties);
  return "";
}

// Compares searches whose rows choose separately. Each run is replayed from its
// own results, which do not say what beams the candidates became.
class RowsComparison {
 public:
  RowsComparison(const PreparedRequest& request,
                 const AnsweredRequest& expected, const AnsweredRequest& actual,
                 AnswerCounts* counts)
      : params_(request.request.params),
        expected_(expected),
        actual_(actual),
        a_(request, expected.steps),
        b_(request, actual.steps),
        has_filters_(DrawsAtRandom(params_) && HasFilters(params_)),
        counts_(*counts) {}

  std::string Compare() {
    std::string difference = a_.DifferenceFrom(expected_.result);
    if (!difference.empty()) return "the expected run: " + difference;
    difference = b_.DifferenceFrom(actual_.result);
    if (!difference.empty()) return difference;
    bool was_filtered = false;
    bool has_near_tie = a_.num_steps() != b_.num_steps();
    const size_t num_steps = std::min(a_.num_steps(), b_.num_steps());
    for (size_t step = 0; step < num_steps; ++step) {
      if (a_.beams(step) != b_.beams(step)) {
        return was_filtered ? FilteredTie() : LateTie(step);
      }
      StepTies ties;
      difference = CompareCandidates(a_, b_, step, kTolerance, &ties);
      if (!difference.empty()) {
        return Concat("other beams from step ", step, " of ",
                      expected_.steps.size(), " on: ", difference);
      }
      has_near_tie = has_near_tie || ties.num_others > 0;
      was_filtered = was_filtered || ties.num_filtered + ties.num_shifted > 0;
      // Every later sum of a row that is shifted is, too.
      if (ties.num_shifted > 0) return FilteredTie();
    }
    return CompareResults(has_near_tie || was_filtered);
  }

 private:
  // A filter kept a token in one run alone: after it, beams may be others. Of
  // sampled beams, those that both have in the end have the same sums; of
  // stochastic ones these are of what their rows' filters kept.
  std::string FilteredTie() {
    ++counts_.num_filtered_ties;
    return params_.stochastic ? "" : HypothesesDifference();
  }

  // Beams changed places, or one replaced another. Sampled beams that both runs
  // have in the end have the same sums, except stochastic ones with filters,
  // whose rows a later filter may shift.
  std::string LateTie(size_t step) {
    ++(has_filters_ ? counts_.num_filtered_ties : counts_.num_late_ties);
    if (!DrawsAtRandom(params_)) return DiverseTie(step);
    return has_filters_ && params_.stochastic ? "" : HypothesesDifference();
  }

  // The first beam that is another ties with the one in its place: all before
  // it are the same, so the penalties are, by which both are ranked. What comes
  // after it has other penalties. Where one run has fewer beams, a group of it
  // ended: which of its beams those are is not known.
  std::string DiverseTie(size_t step) const {
    const BeamTokens& a = a_.beams(step);
    const BeamTokens& b = b_.beams(step);
    if (a.size() != b.size()) return "";
    const size_t rank = std::ranges::mismatch(a, b).in1 - a.begin();
    const double expected = a_.selection(step).cum_log_probs[rank];
    const double actual = b_.selection(step).cum_log_probs[rank];
    if (Close(expected, actual)) return "";
    return Concat("other beams from step ", step, " on: that of rank ", rank,
                  " has ", actual, ", expected ", expected, ": no tie");
  }

  std::string HypothesesDifference() const {
    return MatchHypotheses(expected_.result, actual_.result, params_.stochastic)
        .difference;
  }

  // All answers agree.
  std::string CompareResults(bool has_near_tie) {
    const Matched matched =
        MatchHypotheses(expected_.result, actual_.result, params_.stochastic);
    if (!matched.difference.empty()) return matched.difference;
    if (has_near_tie || !matched.first_other.empty()) {
      ++(has_filters_ ? counts_.num_filtered_ties : counts_.num_near_ties);
    }
    if (params_.stochastic) {
      counts_.num_stochastic_scores +=
          static_cast<int>(expected_.result.hypotheses.size());
      counts_.num_amplified += matched.num_other_scores;
    }
    return "";
  }

  const GenerationParams& params_;
  const AnsweredRequest& expected_;
  const AnsweredRequest& actual_;
  const AnsweredSearch a_;
  const AnsweredSearch b_;
  const bool has_filters_;
  AnswerCounts& counts_;
};

std::string CompareBeams(const PreparedRequest& request,
                         const AnsweredRequest& expected,
                         const AnsweredRequest& actual, AnswerCounts* counts) {
  const GenerationParams& params = request.request.params;
  const bool draws = DrawsAtRandom(params);
  ++(draws && HasFilters(params) ? counts->num_filtered : counts->num_beams);
  if (draws || params.num_beam_groups > 1) {
    return RowsComparison(request, expected, actual, counts).Compare();
  }
  return CompareBestFirst(expected, actual, counts);
}

// `share` of `count`, and two, as a few may be of few.
bool IsAbove(int number, int count, double share) {
  return number > 2 + share * count;
}

}  // namespace

void AnswerCounts::Print(const char* name) const {
  std::printf(
      "%s: %d beam searches, %d near ties, %d late ones; %d with filters, %d "
      "ties; %d stochastic scores, %d amplified; %d samples, %d others, at "
      "most %.1f%% of a request; %d of %d sampled requests shifted\n",
      name, num_beams, num_near_ties, num_late_ties, num_filtered,
      num_filtered_ties, num_stochastic_scores, num_amplified, num_samples,
      num_other_samples, 100 * most_other_samples, num_shifted, num_sampled);
}

std::string AnswerCounts::AboveBounds() const {
  if (IsAbove(num_near_ties, num_beams, 0.05)) {
    return Concat(num_near_ties, " near ties of ", num_beams, " beam searches");
  }
  if (IsAbove(num_late_ties, num_beams, 0.02)) {
    return Concat(num_late_ties, " late ties of ", num_beams, " beam searches");
  }
  if (IsAbove(num_filtered_ties, num_filtered, 0.05)) {
    return Concat(num_filtered_ties, " ties of ", num_filtered,
                  " drawn beam searches with filters");
  }
  if (IsAbove(num_amplified, num_stochastic_scores, 0.02)) {
    return Concat(num_amplified, " amplified scores of ",
                  num_stochastic_scores);
  }
  if (IsAbove(num_other_samples, num_samples, 0.03)) {
    return Concat(num_other_samples, " other samples of ", num_samples);
  }
  if (IsAbove(num_shifted, num_sampled, 0.01)) {
    return Concat(num_shifted, " of ", num_sampled,
                  " sampled requests are shifted");
  }
  return "";
}

std::string CompareAnswers(const PreparedRequest& request,
                           const AnsweredRequest& expected,
                           const AnsweredRequest& actual,
                           AnswerCounts* counts) {
  const GenerationParams& params = request.request.params;
  if (expected.result.prompt_logprobs.has_value() !=
      actual.result.prompt_logprobs.has_value()) {
    return "prompt_logprobs are there once";
  }
  if (expected.result.prompt_logprobs) {
    const std::string difference = CompareLogProbs(
        *expected.result.prompt_logprobs, *actual.result.prompt_logprobs);
    if (!difference.empty()) return "prompt_logprobs: " + difference;
  }
  if (!request.request.continuations.empty()) {
    return CompareContinuations(expected.result, actual.result);
  }
  const bool samples = params.do_sample && !IsBeamSearch(params);
  return samples ? CompareSamples(params, expected, actual, counts)
                 : CompareBeams(request, expected, actual, counts);
}

}  // namespace espalier::testing
