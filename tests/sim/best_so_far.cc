#include "tests/sim/best_so_far.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace espalier::testing {
namespace {

bool IsSame(const Hypothesis& a, const Hypothesis& b) {
  return a.tokens == b.tokens && a.score == b.score &&
         a.cum_log_prob == b.cum_log_prob && a.finish_reason == b.finish_reason;
}

bool BeginsWith(const Hypothesis& longer, const Hypothesis& beginning) {
  return longer.tokens.size() > beginning.tokens.size() &&
         std::ranges::equal(
             beginning.tokens,
             std::span(longer.tokens).first(beginning.tokens.size()));
}

// Removes one of `states` that is a live sequence and a prefix of `hypothesis`.
// True if one was found.
bool TakeBeginning(const Hypothesis& hypothesis,
                   std::vector<Hypothesis>* states) {
  const auto found = std::ranges::find_if(*states, [&](const auto& state) {
    return state.finish_reason == FinishReason::kDeadline &&
           BeginsWith(hypothesis, state) &&
           hypothesis.cum_log_prob <= state.cum_log_prob;
  });
  if (found == states->end()) return false;
  states->erase(found);
  return true;
}

// Why one of `best` is in no step from `first_step` on.
std::string CheckOfSomeStep(const std::vector<Hypothesis>& best,
                            const SearchStates& alone, bool fails_alone,
                            int first_step) {
  std::vector<Hypothesis> last;
  if (fails_alone) last = alone.back();
  for (const Hypothesis& hypothesis : best) {
    const bool is_there = std::any_of(
        alone.begin() + first_step, alone.end(), [&](const auto& states) {
          return std::ranges::any_of(states, [&](const Hypothesis& state) {
            return IsSame(state, hypothesis);
          });
        });
    if (!is_there && !TakeBeginning(hypothesis, &last)) {
      return "a hypothesis that it has at no step alone";
    }
  }
  const bool is_sorted = std::ranges::is_sorted(
      best, [](const auto& a, const auto& b) { return a.score > b.score; });
  return is_sorted ? "" : "not best first";
}

}  // namespace

void StatesWatcher::OnStep(const DecodeStrategy& strategy,
                           const TokenLogProbs*) {
  std::vector<Hypothesis>& now = states_.emplace_back();
  for (const SequenceState& state : strategy.States()) {
    now.push_back({.tokens = strategy.tree().Path(state.node),
                   .score = state.score,
                   .cum_log_prob = state.cum_log_prob,
                   .finish_reason =
                       state.finish_reason.value_or(FinishReason::kDeadline)});
  }
}

std::string CheckBestSoFar(const GenerationParams& params, const Result& result,
                           const SearchStates& alone, bool fails_alone,
                           int num_steps) {
  // A step of the model may decide several of a beam search.
  const bool counts_alike = IsBeamSearch(params)
                                ? result.usage.num_steps <= num_steps
                                : result.usage.num_steps == num_steps;
  if (!counts_alike) return "it counts other steps";
  if (num_steps < 1 || num_steps > std::ssize(alone)) {
    return "it has had no such step alone";
  }
  if (params.speculate.has_value()) {
    if (result.hypotheses.empty()) return "of another size";
    return CheckOfSomeStep(result.hypotheses, alone, fails_alone,
                           num_steps - 1);
  }
  std::vector<Hypothesis> left = alone[num_steps - 1];
  const std::vector<Hypothesis>& best = result.hypotheses;
  const int64_t num_best =
      std::min<int64_t>(std::ssize(left), params.num_return_sequences);
  if (best.empty() || std::ssize(best) > num_best) return "of another size";
  for (size_t i = 0; i < best.size(); ++i) {
    const auto found = std::ranges::find_if(
        left, [&](const Hypothesis& state) { return IsSame(state, best[i]); });
    if (found == left.end()) return "a hypothesis that it has not alone";
    left.erase(found);
    if (i > 0 && best[i].score > best[i - 1].score) return "not best first";
  }
  if (params.num_beam_groups > 1) return "";
  if (std::ssize(best) < num_best) return "of another size";
  const bool is_best = std::ranges::all_of(left, [&](const Hypothesis& state) {
    return !(state.score > best.back().score);
  });
  return is_best ? "" : "there is a better one";
}

}  // namespace espalier::testing
