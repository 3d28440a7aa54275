// DecodeStrategy: how one request's sequences continue. A strategy turns the
// candidates of a step into decisions: which beams live, which hypotheses are
// finished. It reads no pages, no device and no other request. Its group
// (beam/sequence_group.h) applies the decisions.
//
// Beams are named by rank: 0 is the best live one after the last step. The
// group alone assigns the slot of a beam's pages, which never influences a
// result.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/small_vector.h"
#include "beam/strategy/stopping_criteria.h"
#include "beam/strategy/token_tree.h"
#include "exec_request/step_plan.h"
#include "request/request.h"

namespace espalier {

// A live beam: the child of beam `parent_rank` by `token`. If drafts were
// accepted, the child by `num_tokens` tokens, the last of which is `token`.
struct Continuation {
  int parent_rank = 0;
  TokenId token = 0;
  int num_tokens = 1;
  friend bool operator==(const Continuation&, const Continuation&) = default;
};

using Continuations = SmallVector<Continuation>;

// A sequence that a result ended: its rank and path before the result, and the
// number of tokens that it got from the result, the last of which ended it.
struct EndedSequence {
  int rank = 0;
  TokenTree::Node node = TokenTree::kRoot;
  int num_tokens = 1;
};

// Outcome of a candidate, for the trace of a search.
struct Decision {
  enum class What { kKept, kFinished, kPruned };

  int candidate_idx = 0;  // in the step's result
  What what = What::kPruned;
  std::string_view why;  // static storage: "eos", "below the beams", ...
  TokenTree::Node parent = TokenTree::kRoot;
  std::optional<TokenTree::Node> node = {};  // unless pruned
  std::optional<float> score = {};           // if finished
  // True if it was a draft that another token of the same step follows.
  bool is_followed = false;
};

// A sequence, for a SearchWatcher.
struct SequenceState {
  TokenTree::Node node = TokenTree::kRoot;
  float cum_log_prob = 0;
  float score = 0;  // as Hypothesis::score, at its present length
  std::optional<FinishReason> finish_reason = {};  // unset while it lives
};

class DecodeStrategy {
 public:
  virtual ~DecodeStrategy() = default;

  // Describes the next step's selection: sets num_rows, num_generated,
  // cum_log_probs, allowed and choice of `*selection`, and eos_token_ids if the
  // choice uses them. `*selection` may hold another step of the same request.
  // REQUIRES: !done().
  virtual void DescribeSelection(PlanSelection* selection) const = 0;
  // As DescribeSelection, if `*selection` describes the previous step, which
  // was not the first, and each of its rows was extended by one token, in the
  // same order; all rows have one length. So few fields change.
  virtual void UpdateSelection(PlanSelection* selection) const {
    DescribeSelection(selection);
  }

  // True if the sequences that live after a step follow from its candidates by
  // the rule of their SelectionKind, so that an executor can run ahead if it
  // keeps what that takes (CanRunAhead). Constant.
  virtual bool supports_async_scheduling() const = 0;

  // Returns the number of candidates of a step that runs ahead of the result of
  // `selection`, which DescribeSelection has set.
  virtual int num_candidates_ahead(const PlanSelection& selection) const {
    return selection.num_candidates();
  }
  // After a result that lacks beams (BeamSelection::may_lack), which was not
  // applied: the next selection describes the same step, and asks for all
  // candidates that it may need.
  virtual void AskForAll() {}
  // True if the next step's selection is described by lists of legal tokens,
  // even if its params have tables of the constraint, from which a device makes
  // masks.
  virtual bool needs_lists() const { return true; }

  // True if drafts of its sequences can be verified. Constant.
  virtual bool supports_drafts() const { return false; }
  // True if a step that verifies drafts can be described by their lengths
  // alone, before the drafts are known. Constant.
  virtual bool supports_late_drafts() const { return false; }
  // Returns the largest draft length for the live sequence of a rank. It is
  // smaller than the number of tokens left to generate, because a step adds one
  // more.
  // REQUIRES: supports_drafts().
  virtual int max_draft_tokens(int rank) const;
  // Truncates each draft, by rank, at a token that ends its sequence or may not
  // follow: before the token, or after it if the drafts were sampled, because
  // verification must not depend on the sampled tokens.
  // REQUIRES: supports_drafts(), and a step has a result.
  virtual std::vector<std::vector<TokenId>> CutDrafts(
      std::vector<std::vector<TokenId>> drafts, bool are_drawn) const;
  // Adds `drafts`, truncated by CutDrafts, to `*selection`, which
  // DescribeSelection has set.
  virtual void DescribeDrafts(std::vector<std::vector<TokenId>> drafts,
                              PlanSelection* selection) const;

  // Applies a step's result. If `decisions` is not null, it receives one for
  // every ranked candidate, and more for a candidate that several groups ranked
  // or that ended and continued.
  // Errors: kFailedPrecondition if no token was possible, for a sample, or for
  // all beams with none finished: processors masked everything, or the model
  // gave no number above -inf; kInternal if the model gave NaN to a sampled
  // row. Then the request is done.
  // REQUIRES: !done().
  virtual absl::Status Advance(const SelectionResult& result,
                               std::vector<Decision>* decisions = nullptr) = 0;
  // Returns the sequences that live after the last result, by rank; none
  // exactly when it ended the request.
  std::span<const Continuation> continuations() const { return continuations_; }
  // Returns the sequences that the last result ended, by rank, so that their
  // pages can be cached. These have no child. In a beam search, pruned beams
  // share their pages with others, so the list is empty until the result that
  // ends the search, and then has all beams that lived before it. Unset after
  // an error.
  std::span<const EndedSequence> ended() const { return ended_; }

  // Ends the search early: each live sequence becomes a hypothesis of its
  // present length with finish reason `reason`, or "stop" if its text completes
  // a stop string because nothing follows. Groups of beams each keep their
  // best, as at the length limit.
  // REQUIRES: !done(), and Advance was called.
  virtual void FinishLive(FinishReason reason) = 0;

  virtual bool done() const = 0;

  virtual const StoppingCriteria& stopping_criteria() const = 0;
  // Calls `visit` for each row of the next step, by rank.
  virtual void ForEachProgress(
      absl::FunctionRef<void(const StoppingCriteria::Progress&)> visit)
      const = 0;

  // Returns the path of a live beam; AppendTokens appends its tokens.
  virtual TokenTree::Node node(int rank) const = 0;
  void AppendTokens(int rank, std::vector<TokenId>* tokens) const {
    tree().AppendPath(node(rank), tokens);
  }

  // Returns the finished hypotheses, best first, at most num_return_sequences.
  virtual std::vector<Hypothesis> Hypotheses() const = 0;

  // Value of Result::threshold.
  virtual std::optional<double> threshold() const { return std::nullopt; }

  // Tree that contains the paths of all sequences.
  virtual const TokenTree& tree() const = 0;

  // Returns the state of every sample, by number; or of all beams that may be
  // returned or have such descendants: live ones by rank, then finished ones,
  // best first. When done, only those that are returned.
  virtual std::vector<SequenceState> States() const = 0;

 protected:
  // Marks all beams of a search as ended. Advance clears this if the search
  // continues.
  void EndAll(size_t num_live) {
    ended_.clear();
    for (size_t rank = 0; rank < num_live; ++rank) {
      ended_.push_back({static_cast<int>(rank), node(static_cast<int>(rank))});
    }
  }

  // Set by Advance.
  Continuations continuations_;
  std::vector<EndedSequence> ended_;
};

// Errors of Advance. `num_generated` is the number of generated tokens; unset
// for samples, which have different lengths.
absl::Status AllTokensMasked(std::optional<int> num_generated);
absl::Status NotANumber(std::optional<int> num_generated);
// Adds to AllTokensMasked the options of the request that can mask all tokens,
// as its caller wrote them; or returns kInternal if it has none, because the
// model is the cause. Returns any other status unchanged.
absl::Status ExplainNoToken(const absl::Status& status,
                            const GenerationParams& params);
// Returns NotANumber if there is no number among `candidates`.
absl::Status CheckNumbers(std::span<const Candidate> candidates,
                          int num_generated);

// True if an executor can run ahead of results: with a constraint, if it has
// the constraint's tables.
bool CanRunAhead(const DecodeStrategy& strategy, const SelectionParams& params);

}  // namespace espalier
