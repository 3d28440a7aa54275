#include "tests/executor/answer_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/gumbel_topk/gumbel_topk.h"

namespace espalier::testing {
namespace {

// Of scores: relative, or of the least score, as sums and noise may cancel.
constexpr double kTolerance = 1e-4;
constexpr double kLeastScore = 0.5;
// Of log-probabilities: absolute.
constexpr double kLogProbTolerance = 2e-4;
// Of a request's samples: what the borders of draws may change.
constexpr double kOtherSamples = 0.1;
// Where rows choose by themselves, a tie of beams that is not seen replaces one
// by another, of so many at least.
constexpr int kManyBeams = 8;

bool Close(double a, double b) {
  return a == b ||
         std::abs(a - b) <=
             kTolerance * std::max({std::abs(a), std::abs(b), kLeastScore});
}

std::vector<Candidate> ByToken(std::vector<Candidate> candidates) {
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.token != b.token) return a.token < b.token;
    return a.cum_log_prob > b.cum_log_prob;
  });
  return candidates;
}

// Candidates of either that are not in the other, of whatever beam.
int NumUnmatched(const std::vector<Candidate>& expected,
                 const std::vector<Candidate>& actual) {
  const std::vector<Candidate> a = ByToken(expected);
  const std::vector<Candidate> b = ByToken(actual);
  size_t i = 0, j = 0;
  int count = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].token == b[j].token &&
        Close(a[i].cum_log_prob, b[j].cum_log_prob)) {
      ++i, ++j;
      continue;
    }
    ++count;
    const bool a_first = a[i].token != b[j].token
                             ? a[i].token < b[j].token
                             : a[i].cum_log_prob > b[j].cum_log_prob;
    (a_first ? i : j) += 1;
  }
  return count + static_cast<int>(a.size() - i + b.size() - j);
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

// Of the same tokens.
std::string CompareHypotheses(const Hypothesis& a, const Hypothesis& b) {
  if (!Close(a.score, b.score) || !Close(a.cum_log_prob, b.cum_log_prob)) {
    return Concat("score ", b.score, " of sum ", b.cum_log_prob, ", expected ",
                  a.score, " of ", a.cum_log_prob);
  }
  if (a.finish_reason != b.finish_reason) {
    return Concat("finish_reason ", NameOf(b.finish_reason), ", expected ",
                  NameOf(a.finish_reason));
  }
  return CompareLogProbs(a.logprobs, b.logprobs);
}

std::vector<Hypothesis> ByTokens(std::vector<Hypothesis> hypotheses) {
  std::ranges::sort(hypotheses, [](const Hypothesis& a, const Hypothesis& b) {
    if (a.tokens != b.tokens) return a.tokens < b.tokens;
    return a.score > b.score;
  });
  return hypotheses;
}

// Of those of the same tokens; counts those of others in `*num_others`.
std::string MatchHypotheses(const Result& expected, const Result& actual,
                            int* num_others) {
  const std::vector<Hypothesis> a = ByTokens(expected.hypotheses);
  const std::vector<Hypothesis> b = ByTokens(actual.hypotheses);
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].tokens == b[j].tokens) {
      const std::string difference = CompareHypotheses(a[i++], b[j++]);
      if (!difference.empty()) return difference;
    } else if (a[i].tokens < b[j].tokens) {
      ++i, ++*num_others;
    } else {
      ++j;
    }
  }
  *num_others += static_cast<int>(a.size() - i);
  return "";
}

bool HasFilters(const GenerationParams& params) {
  return params.top_k > 0 || params.top_p < 1 || params.min_p > 0 ||
         params.typical_p < 1;
}

std::string CompareSamples(const GenerationParams& params,
                           const AnsweredRequest& expected,
                           const AnsweredRequest& actual,
                           AnswerCounts* counts) {
  const int count = static_cast<int>(expected.result.hypotheses.size());
  int num_others = 0;
  const std::string difference =
      MatchHypotheses(expected.result, actual.result, &num_others);
  ++counts->num_sampled;
  if (!difference.empty()) return difference;
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

enum class Course { kSame, kNearTie, kLateTie, kFilteredTie, kDifferent };

// How a beam search chooses.
struct Search {
  bool by_rows = false;   // each row by itself, in an order of the host's
  bool filters = false;   // and what is drawn from is cut off somewhere
  bool perturbs = false;  // by sums with noise
  uint64_t seed = 0;
  int num_beams = 1;

  explicit Search(const GenerationParams& params) {
    const bool draws = DrawsAtRandom(params);
    perturbs = draws;
    seed = params.seed.value_or(0);
    by_rows = draws || params.num_beam_groups > 1;
    filters = draws && HasFilters(params);
    num_beams = static_cast<int>(params.num_beams);
  }

  // By which candidates of step `step` are answered, but for the shift of
  // stochastic beams.
  double SumOf(const Candidate& candidate, size_t step) const {
    if (!perturbs || candidate.token < 0) return candidate.cum_log_prob;
    const RandomKey key = GumbelKey(seed, candidate.beam, step);
    return candidate.cum_log_prob + Gumbel(key, candidate.token);
  }
};

// Of two steps that have different candidates.
Course CourseOfDifferent(const Search& search,
                         const std::vector<Candidate>& expected,
                         const std::vector<Candidate>& actual, size_t step,
                         bool changed_places) {
  if (search.filters) return Course::kFilteredTie;
  if (ScoresAreClose(expected, actual, [&](const Candidate& c) {
        return search.SumOf(c, step);
      })) {
    return Course::kNearTie;
  }
  if (changed_places) return Course::kLateTie;
  // Two beams that went, and two that came.
  const bool few = search.by_rows && step > 0 &&
                   search.num_beams >= kManyBeams &&
                   NumUnmatched(expected, actual) * search.num_beams <=
                       4 * std::ssize(expected);
  return few ? Course::kLateTie : Course::kDifferent;
}

// How two runs of a beam search go. `*step` is where they part.
Course FollowBeams(const Search& search, const AnsweredRequest& expected,
                   const AnsweredRequest& actual, size_t* step) {
  const size_t num_steps = std::min(expected.steps.size(), actual.steps.size());
  bool changed_places = false;
  for (*step = 0; *step < num_steps; ++*step) {
    const std::vector<Candidate>& a = expected.steps[*step];
    const std::vector<Candidate>& b = actual.steps[*step];
    if (NumUnmatched(a, b) > 0) {
      return CourseOfDifferent(search, a, b, *step, changed_places);
    }
    changed_places = changed_places || !SameOrder(a, b);
  }
  int num_others = 0;
  const bool match =
      MatchHypotheses(expected.result, actual.result, &num_others).empty();
  if (match && num_others == 0) return Course::kSame;
  if (search.filters) return Course::kFilteredTie;
  if (!match) return Course::kDifferent;
  if (ScoresAreClose(expected.result.hypotheses, actual.result.hypotheses,
                     [](const Hypothesis& h) { return h.score; })) {
    return Course::kNearTie;
  }
  return changed_places ? Course::kLateTie : Course::kDifferent;
}

std::string DescribeBest(const Result& result) {
  if (result.hypotheses.empty()) return "no hypothesis";
  return Concat(result.hypotheses[0].score);
}

std::string CompareBeams(const GenerationParams& params,
                         const AnsweredRequest& expected,
                         const AnsweredRequest& actual, AnswerCounts* counts) {
  const Search search(params);
  ++(search.filters ? counts->num_filtered : counts->num_beams);
  size_t step = 0;
  switch (FollowBeams(search, expected, actual, &step)) {
    case Course::kSame:
      return "";
    case Course::kNearTie:
      ++(search.filters ? counts->num_filtered_ties : counts->num_near_ties);
      return "";
    case Course::kLateTie:
      ++(search.filters ? counts->num_filtered_ties : counts->num_late_ties);
      return "";
    case Course::kFilteredTie:
      ++counts->num_filtered_ties;
      return "";
    case Course::kDifferent:
      return Concat("other beams from step ", step, " of ",
                    expected.steps.size(), " on; best score ",
                    DescribeBest(actual.result), ", expected ",
                    DescribeBest(expected.result));
  }
  return "";
}

// `share` of `count`, and two, as a few may be of few.
bool IsAbove(int number, int count, double share) {
  return number > 2 + share * count;
}

}  // namespace

void AnswerCounts::Print(const char* name) const {
  std::printf(
      "%s: %d beam searches, %d near ties, %d late ones; %d with filters, %d "
      "ties; %d samples, %d others, at most %.1f%% of a request; %d of %d "
      "sampled requests shifted\n",
      name, num_beams, num_near_ties, num_late_ties, num_filtered,
      num_filtered_ties, num_samples, num_other_samples,
      100 * most_other_samples, num_shifted, num_sampled);
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
  if (IsAbove(num_other_samples, num_samples, 0.03)) {
    return Concat(num_other_samples, " other samples of ", num_samples);
  }
  if (IsAbove(num_shifted, num_sampled, 0.01)) {
    return Concat(num_shifted, " of ", num_sampled,
                  " sampled requests are shifted");
  }
  return "";
}

std::string CompareAnswers(const GenerationParams& params,
                           const AnsweredRequest& expected,
                           const AnsweredRequest& actual,
                           AnswerCounts* counts) {
  if (expected.result.prompt_logprobs.has_value() !=
      actual.result.prompt_logprobs.has_value()) {
    return "prompt_logprobs are there once";
  }
  if (expected.result.prompt_logprobs) {
    const std::string difference = CompareLogProbs(
        *expected.result.prompt_logprobs, *actual.result.prompt_logprobs);
    if (!difference.empty()) return "prompt_logprobs: " + difference;
  }
  const bool samples = params.do_sample && !IsBeamSearch(params);
  return samples ? CompareSamples(params, expected, actual, counts)
                 : CompareBeams(params, expected, actual, counts);
}

}  // namespace espalier::testing
