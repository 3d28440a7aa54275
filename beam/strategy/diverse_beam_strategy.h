// DiverseBeamStrategy: groups of beams that search one after the other at each
// step and avoid each other's tokens (Hamming diversity), as in transformers 4
// (`_group_beam_search` with BeamSearchScorer). With s = num_beams /
// num_beam_groups beams per group:
//
// - each group begins at the prompt, with its own beams and its own pool of s;
// - a token's score is lowered by diversity_penalty for every beam of an
//   earlier group that chose it in this step; the sums keep the penalty;
// - then a group's step is that of a beam search of s beams
//   (beam_frontier.h);
// - a group ends when its pool is full and its best candidate, which may be
//   one that ends, cannot beat the pool's worst (search_termination.h); at the
//   length limit all beams of active groups finish;
// - the result is the best of all pools.
//
// Two deliberate differences. Score processors act before the penalty; the
// reference's repetition penalty acts after it. A group that has ended chooses
// no more tokens; the reference counts padding as its choice.
//
// Source: Vijayakumar et al. 2016, https://arxiv.org/abs/1610.02424.
#pragma once

#include <memory>
#include <vector>

#include "beam/strategy/beam_frontier.h"
#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/length_penalty.h"
#include "beam/strategy/search_termination.h"
#include "beam/strategy/stopping_criteria.h"
#include "beam/strategy/token_tree.h"
#include "exec_request/diverse_choice.h"

namespace espalier {

class DiverseBeamStrategy : public DecodeStrategy {
 public:
  // `params` as ValidateParams leaves them; other arguments as for
  // StoppingCriteria.
  explicit DiverseBeamStrategy(
      const GenerationParams& params,
      std::shared_ptr<const Constraint> constraint = nullptr,
      std::shared_ptr<const RequestText> text = nullptr);

  // Rows are the beams of the active groups, in order of the groups. At the
  // first step all groups begin in one row.
  void DescribeSelection(PlanSelection* selection) const override;
  static int64_t MaxNumCandidates(const GenerationParams& params,
                                  const Constraint* constraint);
  bool supports_async_scheduling() const override { return false; }
  absl::Status Advance(const SelectionResult& result,
                       std::vector<Decision>* decisions) override;
  void FinishLive(FinishReason reason) override;
  bool done() const override { return done_; }
  const StoppingCriteria& stopping_criteria() const override {
    return stopping_criteria_;
  }
  void ForEachProgress(
      absl::FunctionRef<void(const StoppingCriteria::Progress&)> visit)
      const override;
  TokenTree::Node node(int rank) const override;
  std::vector<Hypothesis> Hypotheses() const override;
  const TokenTree& tree() const override { return tree_; }
  std::vector<SequenceState> States() const override;

 private:
  // Returns the rows of each active group.
  std::vector<RowBlock> RowsOfGroups() const;
  // Returns the best candidates of a group, best first.
  std::vector<RankedCandidate> Penalised(const RowBlock& group,
                                         std::span<const Candidate> answer,
                                         const TokenChoices& choices) const;
  void AdvanceGroup(BeamFrontier* group,
                    std::span<const RankedCandidate> candidates,
                    std::vector<Decision>* decisions, TokenChoices* choices);
  std::vector<LiveBeam> LiveBeams() const;
  // Returns the finished beams of all groups, best first.
  std::vector<FinishedBeam> Finished() const;

  // Constant after construction.
  const int num_beams_;
  const int group_size_;
  const int num_return_sequences_;
  const int max_new_tokens_;
  const double diversity_penalty_;
  const LengthPenalty length_penalty_;
  const SearchTermination search_termination_;
  const StoppingCriteria stopping_criteria_;

  TokenTree tree_;
  std::vector<BeamFrontier> groups_;  // ended groups have no live beams
  int num_generated_ = 0;
  bool done_ = false;
};

}  // namespace espalier
