// BeamStrategy: beam search as transformers 5 does it (`_beam_search`,
// vectorised), to the token and to the score. With k = num_beams, t the length
// generated including the new token and m = max(2, 1 + num_eos) * k:
//
// - the m best continuations of the live beams are the candidates; with
//   do_sample, m sampled ones (candidate_order.h);
// - a candidate ends if it meets the stopping criteria
//   (stopping_criteria.h), such as an EOS id, or has max_new_tokens tokens;
// - the k best that do not end live on, even if candidates are sampled;
// - candidates among the k best, or first sampled, that end enter the finished
//   pool of k with score cum / t^length_penalty (length_penalty.h);
// - the search ends by its SearchTermination, or when every candidate ends.
//
// After such an end the reference continues the request with its batch, but
// adds nothing to the pool. Here the request is complete.
//
// Two deliberate differences. If score processors leave fewer than k
// continuations, fewer beams live and fewer hypotheses are returned; the
// reference pads with copies of score -1e9. With a constraint, m is large
// enough that no beam is lost to candidates that end.
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
  // `params` as ValidateParams leaves them; other arguments as for
  // StoppingCriteria.
  explicit BeamStrategy(const GenerationParams& params,
                        std::shared_ptr<const Constraint> constraint = nullptr,
                        std::shared_ptr<const RequestText> text = nullptr);

  // Returns the largest num_candidates of any step; so do other strategies.
  static int64_t MaxNumCandidates(const GenerationParams& params,
                                  const Constraint* constraint) {
    return espalier::MaxNumCandidates(params, constraint, params.num_beams);
  }
  void DescribeSelection(PlanSelection* selection) const override;
  bool supports_async_scheduling() const override;
  // Drafts can be verified if the executor can advance the search without the
  // host.
  bool supports_drafts() const override {
    return order_->is_best_first() && stopping_criteria_.is_by_token();
  }
  int num_candidates_ahead(const PlanSelection& selection) const override {
    return stopping_criteria_.restricts() ? num_usual_candidates_
                                          : selection.num_candidates();
  }
  void AskForAll() override { asks_for_all_ = true; }
  // The list of the first step is there (beam/prepared_request.h).
  bool needs_lists() const override {
    return !order_->is_best_first() || num_generated_ == 0 || asks_for_all_;
  }
  int max_draft_tokens(int rank) const override;
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
  // Returns the number of candidates that the next step may need. With a
  // constraint, it takes the lists of legal tokens.
  int NumCandidates() const;

  // Constant after construction.
  const int num_beams_;
  const int num_return_sequences_;
  const int max_new_tokens_;
  // With a constraint: candidates of a step that may lack some.
  const int num_usual_candidates_;
  const LengthPenalty length_penalty_;
  const SearchTermination search_termination_;
  const StoppingCriteria stopping_criteria_;
  const std::unique_ptr<const CandidateOrder> order_;

  TokenTree tree_;
  std::vector<int> parent_ranks_;  // [nodes], if beam_indices are reported
  BeamFrontier frontier_;
  std::vector<RankedCandidate> ranked_;  // buffer of Advance
  int num_generated_ = 0;
  bool asks_for_all_ = false;
  bool done_ = false;
};

}  // namespace espalier
