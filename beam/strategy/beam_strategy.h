// BeamStrategy: beam search as transformers 5 does it (`_beam_search`,
// vectorised), to the token and to the score. With k = num_beams, t the length
// generated including the new token and m = max(2, 1 + num_eos) * k:
//
//   - the m best continuations of the live beams are the candidates; with
//     do_sample, m that are drawn (candidate_order.h);
//   - a candidate hits if it meets the stopping criteria
//     (stopping_criteria.h), such as an EOS id, or has max_new_tokens tokens;
//   - the k best that do not hit live on, of candidates that are drawn as well;
//   - those of the k best, or first drawn, that hit enter the finished pool of
//     k with score cum / t^length_penalty (length_penalty.h);
//   - it ends by its SearchTermination, or when every candidate hit.
//
// The reference also keeps a pool from filling after such an end: there a
// request goes on with its batch, here it is over.
//
// Two deliberate differences. Where score processors leave fewer than k
// continuations, fewer beams live and fewer hypotheses come back; the reference
// fills up with copies of score -1e9. And where sequences are allowed m is as
// many as it takes, so that no beam is lost to those that end.
#pragma once

#include <memory>
#include <vector>

#include "beam/strategy/beam_frontier.h"
#include "beam/strategy/candidate_order.h"
#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/length_penalty.h"
#include "beam/strategy/search_termination.h"
#include "beam/strategy/stopping_criteria.h"
#include "beam/strategy/token_tree.h"

namespace espalier {

class BeamStrategy : public DecodeStrategy {
 public:
  // `params` as ValidateParams leaves them; the rest as StoppingCriteria takes
  // it.
  explicit BeamStrategy(
      const GenerationParams& params,
      std::shared_ptr<const AllowedSequenceTrie> allowed = nullptr,
      std::shared_ptr<const RequestText> text = nullptr);

  // PlanSelection::num_candidates at most, in any step; so in other strategies.
  static int64_t MaxNumCandidates(const GenerationParams& params,
                                  const AllowedSequenceTrie* allowed) {
    return espalier::MaxNumCandidates(params, allowed, params.num_beams);
  }
  void DescribeSelection(PlanSelection* selection) const override;
  bool supports_async_scheduling() const override;
  // Where the executor can go on by itself, drafts can be verified.
  bool supports_drafts() const override { return supports_async_scheduling(); }
  int max_draft_tokens(int rank) const override;
  absl::Status Advance(const SelectionResult& result,
                       std::vector<Decision>* decisions) override;
  void FinishLive(FinishReason reason) override;
  bool done() const override { return done_; }
  TokenTree::Node node(int rank) const override;
  std::vector<Hypothesis> Hypotheses() const override;
  const TokenTree& tree() const override { return tree_; }
  std::vector<SequenceState> States() const override;

 private:
  int NumCandidates() const;

  // Constant after construction.
  const int num_beams_;
  const int num_return_sequences_;
  const int max_new_tokens_;
  const LengthPenalty length_penalty_;
  const SearchTermination search_termination_;
  const StoppingCriteria stopping_criteria_;
  const std::unique_ptr<const CandidateOrder> order_;

  TokenTree tree_;
  BeamFrontier frontier_;
  std::vector<RankedCandidate> ranked_;  // of Advance: memory for each step
  int num_generated_ = 0;
  bool done_ = false;
};

}  // namespace espalier
