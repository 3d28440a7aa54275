#include "beam/strategy/beam_strategy.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/strategy/describe_rows.h"
#include "beam/strategy/selection_options.h"

namespace espalier {

BeamStrategy::BeamStrategy(const GenerationParams& params,
                           std::shared_ptr<const Constraint> constraint,
                           std::shared_ptr<const RequestText> text)
    : num_beams_(SaturateToInt(params.num_beams)),
      num_return_sequences_(SaturateToInt(params.num_return_sequences)),
      max_new_tokens_(SaturateToInt(params.max_new_tokens.value())),
      num_usual_candidates_(SaturateToInt(
          std::min(MaxNumCandidates(params, /*constraint=*/nullptr),
                   MaxNumCandidates(params, constraint.get())))),
      length_penalty_(params),
      search_termination_(params, num_beams_),
      stopping_criteria_(params, std::move(constraint), std::move(text)),
      order_(MakeCandidateOrder(params)),
      frontier_(num_beams_, search_termination_.pool_capacity(),
                &stopping_criteria_, &length_penalty_, &tree_,
                params.beam_indices ? &parent_ranks_ : nullptr) {}

bool BeamStrategy::supports_async_scheduling() const {
  return order_->is_best_first() && stopping_criteria_.ends_by_state();
}

int BeamStrategy::max_draft_tokens(int) const {
  return max_new_tokens_ - num_generated_ - 1;
}

int BeamStrategy::NumCandidates() const {
  return espalier::NumCandidates(frontier_.live(), stopping_criteria_,
                                 num_beams_);
}

void BeamStrategy::DescribeSelection(PlanSelection* selection) const {
  CHECK(!done_) << "the request is done";
  const std::span<const LiveBeam> live = frontier_.live();
  DescribeRows(
      live.size(), [&](size_t row) -> const LiveBeam& { return live[row]; },
      stopping_criteria_, selection);
  selection->num_generated = num_generated_;
  const bool is_usual =
      selection->params->constraint.has_value() && !needs_lists();
  const int num_candidates = is_usual ? num_usual_candidates_ : NumCandidates();
  if (!order_->is_best_first()) {
    selection->choice =
        RowSelection{.num_candidates = num_candidates,
                     .gumbel_top_k = true,
                     .ranking = KeepAcrossRows{.count = num_candidates}};
    return;
  }
  BeamSelection& beams = selection->Choose<BeamSelection>();
  beams.num_candidates = num_candidates;
  // No beam continues after the last step.
  beams.may_lack =
      is_usual && num_generated_ + 1 < stopping_criteria_.max_length();
  if (!stopping_criteria_.is_by_token()) return;
  const std::span<const TokenId> eos_token_ids = stopping_criteria_.token_ids();
  selection->eos_token_ids.assign(eos_token_ids.begin(), eos_token_ids.end());
  beams.num_kept = num_beams_;
}

absl::Status BeamStrategy::Advance(const SelectionResult& result,
                                   std::vector<Decision>* decisions) {
  CHECK(!done_) << "the request is done";
  done_ = true;  // reset below if the search continues
  asks_for_all_ = false;
  const absl::Status numbers = CheckNumbers(result.candidates, num_generated_);
  const bool is_masked =
      result.candidates.empty() && frontier_.finished().size() == 0;
  if (!numbers.ok() || is_masked) {
    continuations_.clear();
    return numbers.ok() ? AllTokensMasked(num_generated_) : numbers;
  }
  order_->Rank(result.candidates, num_generated_,
               order_->is_best_first() ? 0 : NumCandidates(), &ranked_);
  ++num_generated_;
  frontier_.Advance(ranked_, {.length = num_generated_,
                              .is_last = num_generated_ >= max_new_tokens_,
                              .are_drawn = !order_->is_best_first(),
                              .decisions = decisions});
  const std::span<const LiveBeam> live = frontier_.live();
  done_ = live.empty() ||
          search_termination_.Ends(frontier_.finished(),
                                   live.front().cum_log_prob, num_generated_);
  if (done_) {
    continuations_.clear();
    for (const LiveBeam& beam : frontier_.previous()) {
      ended_.push_back({static_cast<int>(ended_.size()), beam.node});
    }
  } else {
    AssignContinuations(live, &continuations_);
  }
  return absl::OkStatus();
}

void BeamStrategy::FinishLive(FinishReason reason) {
  CHECK(!done_ && num_generated_ > 0) << "nothing was generated";
  done_ = true;
  frontier_.FinishAll({.length = num_generated_, .reason = reason});
}

void BeamStrategy::ForEachProgress(
    absl::FunctionRef<void(const StoppingCriteria::Progress&)> visit) const {
  for (const LiveBeam& beam : frontier_.live()) visit(beam.progress);
}

TokenTree::Node BeamStrategy::node(int rank) const {
  return frontier_.live()[rank].node;
}

std::vector<Hypothesis> BeamStrategy::Hypotheses() const {
  const std::span<const FinishedBeam> beams = frontier_.finished().beams();
  std::vector<Hypothesis> hypotheses =
      HypothesesOf(beams, num_return_sequences_, tree_);
  if (parent_ranks_.empty()) return hypotheses;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    std::vector<int>& indices = hypotheses[i].beam_indices;
    for (TokenTree::Node node = beams[i].node; node != TokenTree::kRoot;
         node = tree_.parent(node)) {
      indices.push_back(parent_ranks_[node]);
    }
    std::ranges::reverse(indices);
  }
  return hypotheses;
}

// A hypothesis only moves down in the pool, so those below the returned ones
// are never returned.
std::vector<SequenceState> BeamStrategy::States() const {
  std::vector<SequenceState> states;
  if (!done_) {
    AppendStates(frontier_.live(), num_generated_, length_penalty_, &states);
  }
  AppendStates(frontier_.finished().beams(), num_return_sequences_, &states);
  return states;
}

}  // namespace espalier
