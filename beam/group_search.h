// GroupSearch: the sequences of a group as tokens. It owns the strategy, whose
// tree has all sequences and which decides how they continue and when they end,
// and the log-probabilities that the request reports. It has no pages and
// writes no plans: a sequence's pages are in GroupPages, its rows are written
// by GroupPlanWriter, both under the rank that the strategy gives it.
//
// Invariant: a live sequence's newest token is in the tree, and is not fed
// unless the step after is planned.
//
// Belongs to its group's strand.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/request_text.h"
#include "beam/strategy/sample_strategy.h"
#include "beam/strategy/token_logprobs.h"
#include "constrain/constraint.h"
#include "exec_request/step_plan.h"
#include "request/request.h"

namespace espalier {

class GroupSearch {
 public:
  //   params   of the selections of `request`
  //   constraint  null: none
  //   text     null without a tokenizer
  GroupSearch(const Request& request, const SelectionParams& params,
              std::shared_ptr<const Constraint> constraint,
              std::shared_ptr<const RequestText> text);
  // Turns off ContinueAll, so that Advance gets every result: drafts and traces
  // need them.
  void DisableContinueAll() { draws_only_ = nullptr; }

  const DecodeStrategy& strategy() const { return *strategy_; }
  // Null unless the request reports log-probabilities.
  const TokenLogProbs* logprobs() const {
    return reports_logprobs_ ? &logprobs_ : nullptr;
  }
  bool reports_logprobs() const { return reports_logprobs_; }

  // Tokens that a live sequence has generated, and the last of them.
  int LengthOf(int rank) const {
    return strategy_->tree().depth(strategy_->node(rank));
  }
  const TokenId& LastToken(int rank) const {
    return strategy_->continuations()[rank].token;
  }
  std::vector<TokenId> LastTokens(int rank, int num_tokens) const;
  // True if the first `num_sequences` live sequences have one length.
  bool HaveOneLength(size_t num_sequences) const;

  // As DecodeStrategy::UpdateSelection.
  void UpdateSelection(PlanSelection* selection) const {
    return draws_only_ != nullptr ? draws_only_->UpdateUnrestricted(selection)
                                  : strategy_->UpdateSelection(selection);
  }
  // Fast path of Advance for a result in which each sample has one token and
  // continues. Returns false, having changed nothing, for any other result.
  [[gnu::always_inline]] bool ContinueAll(const SelectionResult& result,
                                          int vocab_size) {
    return draws_only_ != nullptr && result.num_tokens.empty() &&
           result.further.empty() &&
           draws_only_->ContinueAll(result.candidates, vocab_size);
  }
  // As DecodeStrategy::Advance, which writes `*decisions`. These may be null
  // unless log-probabilities are reported.
  // Errors: also as StoppingCriteria::CheckMemory.
  absl::Status Advance(const SelectionResult& result,
                       std::vector<Decision>* decisions) {
    absl::Status status = strategy_->Advance(result, decisions);
    if (reports_logprobs_) logprobs_.Take(result, *decisions);
    if (is_constrained_) {
      // Why there are no legal tokens, if that is an error of `status`.
      absl::Status memory = strategy_->stopping_criteria().CheckMemory();
      if (!memory.ok()) return memory;
    }
    return status;
  }
  // As DecodeStrategy::AskForAll.
  void AskForAll() { strategy_->AskForAll(); }
  // As DecodeStrategy::FinishLive.
  void FinishLive(FinishReason reason);

  bool is_constrained() const { return is_constrained_; }
  // Returns the places of live sequences whose lists of legal tokens are not
  // made and take long. Makes those that do not.
  // REQUIRES: is_constrained().
  std::vector<ConstraintPlace> UnlistedPlaces() const;

  // Sets the hypotheses of `*result`, what they generated, and how they ended.
  // REQUIRES: done, or FinishLive.
  void FillResult(Result* result) const;

  // Prefetches the part of the strategy that a step reads. Always inlined: gcc
  // drops calls of functions that only prefetch.
  [[gnu::always_inline]] void PrefetchStrategy() const {
    const auto* const strategy = reinterpret_cast<const char*>(strategy_.get());
    for (int line = 0; line < 3; ++line) {
      __builtin_prefetch(strategy + 64 * line);
    }
  }

 private:
  std::unique_ptr<DecodeStrategy> strategy_;
  // strategy_ if the group samples one token of each sequence per step and
  // nothing else (no allow list, drafts, logprobs or trace), else null. This is
  // the common case.
  SampleStrategy* draws_only_ = nullptr;
  const bool reports_logprobs_;
  const bool is_constrained_;
  bool deadline_passed_ = false;
  TokenLogProbs logprobs_;  // if reported
};

}  // namespace espalier
