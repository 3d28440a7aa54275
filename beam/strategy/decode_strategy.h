// DecodeStrategy: how the sequences of one request go on. A strategy turns the
// values of a step (candidates) into decisions (which beams live, which
// hypotheses are finished); it sees no pages, no device and no other request.
// Its group (beam/beam_group.h) applies the decisions.
//
// Beams are named by rank: 0 is the best live one after the last step. Where a
// beam's pages lie, its slot, is the group's business and never influences a
// result.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/small_vector.h"
#include "beam/strategy/token_tree.h"
#include "exec_request/step_plan.h"
#include "request/request.h"

namespace espalier {

// A beam that lives on: the child of beam `parent_rank` by `token`; or, where
// drafts were accepted, by `num_tokens` tokens, of which `token` is the last.
struct Continuation {
  int parent_rank = 0;
  TokenId token = 0;
  int num_tokens = 1;
  friend bool operator==(const Continuation&, const Continuation&) = default;
};

using Continuations = SmallVector<Continuation>;

// A sequence that an answer ended, as it was before that: of this rank and
// path; and the tokens that the answer gave it, the last of which ended it.
struct EndedSequence {
  int rank = 0;
  TokenTree::Node node = TokenTree::kRoot;
  int num_tokens = 1;
};

// What became of a candidate, for the trace of a search.
struct Decision {
  enum class What { kKept, kFinished, kPruned };

  int candidate_idx = 0;  // in the step's answer
  What what = What::kPruned;
  std::string_view why;  // of static storage: "eos", "below the beams", ...
  TokenTree::Node parent = TokenTree::kRoot;
  std::optional<TokenTree::Node> node = {};  // unless pruned
  std::optional<float> score = {};           // of a finished one
  // Whether another token of the same step follows it: it was a draft.
  bool is_followed = false;
};

// A sequence, for a SearchWatcher.
struct SequenceState {
  TokenTree::Node node = TokenTree::kRoot;
  float cum_log_prob = 0;
  float score = 0;  // as Hypothesis has it, at its present length
  std::optional<FinishReason> finish_reason = {};  // unset: it lives
};

class DecodeStrategy {
 public:
  virtual ~DecodeStrategy() = default;

  // What the next step has to select: sets num_rows, num_candidates,
  // num_generated, cum_log_probs, samples, allowed and ranking of `*selection`,
  // and eos_token_ids if the ranking is by them; whatever it held of another
  // step of the same request.
  // REQUIRES: !done().
  virtual void DescribeSelection(PlanSelection* selection) const = 0;
  // DescribeSelection where `*selection` is that of the step before, which was
  // not the first, and each of its rows went on by one token, in their order;
  // all are of one length. So little of it changes.
  virtual void UpdateSelection(PlanSelection* selection) const {
    DescribeSelection(selection);
  }

  // Whether the sequences that live after a step follow from its candidates by
  // the rule of their kind (SelectionKind), so that an executor can run ahead.
  // Constant.
  virtual bool supports_async_scheduling() const = 0;

  // Whether drafts of its sequences can be verified. Constant.
  virtual bool supports_drafts() const { return false; }
  // Whether a step that verifies drafts can be described by their lengths
  // alone, before it is known what they are. Constant.
  virtual bool supports_late_drafts() const { return false; }
  // Tokens that may be drafted for the live sequence of rank `rank`, at most:
  // fewer than it has left to generate, since a step adds one more.
  // REQUIRES: supports_drafts().
  virtual int max_draft_tokens(int rank) const;
  // Cuts each draft, by rank, at a token that ends its sequence or may not
  // follow: before it, or after it if the drafts were drawn, since what is
  // verified must not depend on what was drawn.
  // REQUIRES: supports_drafts(), and a step was answered.
  virtual std::vector<std::vector<TokenId>> CutDrafts(
      std::vector<std::vector<TokenId>> drafts, bool are_drawn) const;
  // Makes `*selection`, which DescribeSelection has set, verify `drafts`, which
  // CutDrafts has cut.
  virtual void DescribeDrafts(std::vector<std::vector<TokenId>> drafts,
                              PlanSelection* selection) const;

  // Takes a step's answer. If `decisions` is not null it gets one of every
  // candidate that ranked; more of one that several groups ranked, or that
  // ended and went on.
  // Errors: kFailedPrecondition if no token was possible, for a sample or for
  // all beams with none finished: processors ruled everything out, or the model
  // gave no number above -inf; kInternal if the model gave NaN to a row that is
  // drawn from. The request is done then.
  // REQUIRES: !done().
  virtual absl::Status Advance(const SelectionResult& result,
                               std::vector<Decision>* decisions = nullptr) = 0;
  // The sequences that live on after the last answer, by rank; none exactly
  // when it ended the request.
  std::span<const Continuation> continuations() const { return continuations_; }
  // The sequences that it ended, by rank: those that have no child, for whoever
  // keeps what they have fed. Of a search by beams, whose pruned ones live on
  // in others, all that lived before the answer that ended it, and none until
  // then. Unset after an error.
  std::span<const EndedSequence> ended() const { return ended_; }

  // Ends the search where it stands: each live sequence becomes a hypothesis of
  // its present length that `reason` ends, or "stop" where its text completes a
  // stop as nothing follows. In groups of beams, as at the length limit, each
  // keeps the best of its own.
  // REQUIRES: !done(), and Advance was called.
  virtual void FinishLive(FinishReason reason) = 0;

  virtual bool done() const = 0;

  // The path of the live beam of rank `rank`; and its tokens, appended.
  virtual TokenTree::Node node(int rank) const = 0;
  void AppendTokens(int rank, std::vector<TokenId>* tokens) const {
    tree().AppendPath(node(rank), tokens);
  }

  // The finished hypotheses, best first, at most num_return_sequences.
  virtual std::vector<Hypothesis> Hypotheses() const = 0;

  // Becomes Result::threshold.
  virtual std::optional<double> threshold() const { return std::nullopt; }

  // What all sequences are paths of.
  virtual const TokenTree& tree() const = 0;

  // Samples: every one, by number. Beams: every sequence that may still be
  // returned, or whose descendants may: the live ones by rank, then the
  // finished ones, best first; when done, those that are returned.
  virtual std::vector<SequenceState> States() const = 0;

 protected:
  // Of Advance, in a search of so many beams: all end with this answer, until
  // it is known that the search goes on.
  void EndAll(size_t num_live) {
    ended_.clear();
    for (size_t rank = 0; rank < num_live; ++rank) {
      ended_.push_back({static_cast<int>(rank), node(static_cast<int>(rank))});
    }
  }

  // Of Advance to set.
  Continuations continuations_;
  std::vector<EndedSequence> ended_;
};

// Errors of Advance, with the number of tokens generated by then; unset: of a
// sample, and others have generated other numbers.
absl::Status AllTokensMasked(std::optional<int> num_generated);
absl::Status NotANumber(std::optional<int> num_generated);
// AllTokensMasked with the options of the request that can leave no token, as
// its caller wrote them, or kInternal where none can: then it is the model's.
// Any other status as it is.
absl::Status ExplainNoToken(const absl::Status& status,
                            const GenerationParams& params);
// NotANumber if there is no number among `candidates`.
absl::Status CheckNumbers(std::span<const Candidate> candidates,
                          int num_generated);

}  // namespace espalier
