// Drafts in a StepPlan and in its result. A plan asks for a draft by a
// DraftSequence: the executor's draft model drafts for a sequence, and rows of
// the same plan verify what it drafts (SampleDrafts), or those of a later one.
//
//   DraftSequence ─> draft model ─> DraftedTokens ─> SampleDrafts or PathRows
//    of a plan                       within the step, or      ─> verification
//                                    in StepResult::drafts
//
// A device samples the tokens of a draft without the host (PendingDraft), and
// keeps the logits that they were drawn from (DraftLogits). The executor's part
// is in executor/drafts/step_drafter.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/constraint_tables.h"
#include "base/ids.h"
#include "base/small_vector.h"
#include "kernels/verify/verified_draft.h"

namespace espalier {

class Constraint;  // constrain/constraint.h
struct SelectionParams;

// Drafts stop at a token that ends the sequence. The ending token itself need
// not be in the draft, because the step that verifies it samples one token
// more. If acceptance depends on the logits that the draft was drawn from
// (NeedsDraftLogits), the ending token is kept: rejection sampling follows the
// model's distribution only if every sampled token is verified.
//
// Returns the number of tokens of `draft` before the first one in `ids`, which
// are ascending and end a sequence; including that one if `keeps_end`.
inline size_t LengthToEnd(std::span<const TokenId> draft,
                          std::span<const TokenId> ids, bool keeps_end) {
  const auto end = std::ranges::find_if(draft, [&](TokenId token) {
    return std::ranges::binary_search(ids, token);
  });
  const size_t length = end - draft.begin();
  return keeps_end && end != draft.end() ? length + 1 : length;
}

// True if verification needs the logits that drafts were drawn from.
bool NeedsDraftLogits(const SelectionParams& params);

// The rows of logits that the tokens of one draft were drawn from, as the draft
// model computed them: before edits, temperature and filters. Verification by
// rejection reads them (kernels/verify/verify.h). They stay where they were
// computed, on the host or in the memory of a GPU. Copies share them, and the
// last copy, on any thread, frees them.
class DraftLogits {
 public:
  static constexpr int kHost = -1;

  // Makes an empty value.
  DraftLogits() = default;
  // Wraps logits on the host: [tokens, vocab_size] f32.
  explicit DraftLogits(std::vector<float> logits) {
    const auto owner =
        std::make_shared<const std::vector<float>>(std::move(logits));
    size_ = owner->size();
    logits_ = {owner, owner->data()};
  }
  // Wraps logits in GPU memory, of the same shape. The GPU writes them before a
  // reader is given this value. `logits` frees the memory without waiting for
  // the GPU, so a reader keeps a copy until its reads have completed.
  DraftLogits(std::shared_ptr<const float> logits, size_t size, int ordinal)
      : logits_(std::move(logits)), size_(size), device_(ordinal) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }  // values in all rows
  // Returns the ordinal of the GPU that holds the logits, or kHost.
  int device() const { return device_; }
  const float* data() const { return logits_.get(); }
  // REQUIRES: they are on the host.
  std::span<const float> values() const;

  // Returns the first `size` values, without a copy.
  // REQUIRES: size <= size(), a multiple of vocab_size.
  DraftLogits First(size_t size) const { return {logits_, size, device_}; }

 private:
  std::shared_ptr<const float> logits_;
  size_t size_ = 0;
  int device_ = kHost;
};

// The tokens of one draft that a GPU samples while the plan that verifies them
// is on its way (DraftSampler). The host does not wait for them: the step that
// verifies them follows on the same stream and reads them there. The host reads
// them when that step has ended. Copies share the memory, which is reused when
// the last copy is destroyed; the executor holds one until the step has ended.
//
//   stream   k steps of the draft model ─> tokens ─> step: place tokens, verify
//
// The step may write the verification result to device memory. Then the next
// draft of the sequence, and the step that verifies it, begin there without the
// host.
class PendingDraft {
 public:
  // Makes an empty draft.
  PendingDraft() = default;
  //   tokens    pinned host memory, mapped on GPUs at the same address: token i
  //             is tokens[i * stride]; negative if it could not be sampled, and
  //             then later tokens are meaningless
  //   verified  in pinned memory that `tokens` owns, receives the verification
  //             result; null: unused
  PendingDraft(std::shared_ptr<const TokenId> tokens, int stride,
               int num_tokens, VerifiedDraft* verified = nullptr)
      : tokens_(std::move(tokens)),
        stride_(stride),
        num_tokens_(num_tokens),
        verified_(verified) {}

  bool empty() const { return num_tokens_ == 0; }
  int num_tokens() const { return num_tokens_; }
  const TokenId* tokens() const { return tokens_.get(); }
  int stride() const { return stride_; }
  VerifiedDraft* verified() const { return verified_; }

  // REQUIRES: it was sampled.
  TokenId token(int i) const { return tokens_.get()[i * stride_]; }

  // Truncates the draft at the first of `ids` (LengthToEnd).
  void EndAt(std::span<const TokenId> ids, bool keeps_end) {
    end_ids_.assign(ids.begin(), ids.end());
    keeps_end_ = keeps_end;
  }
  // Returns the tokens of the draft, up to its end. REQUIRES: as token().
  std::vector<TokenId> Tokens() const;

 private:
  std::shared_ptr<const TokenId> tokens_;
  int stride_ = 1;
  int num_tokens_ = 0;
  VerifiedDraft* verified_ = nullptr;
  SmallVector<TokenId> end_ids_;
  bool keeps_end_ = false;
};

inline std::vector<TokenId> PendingDraft::Tokens() const {
  std::vector<TokenId> tokens;
  for (int i = 0; i < num_tokens_ && token(i) >= 0; ++i) {
    tokens.push_back(token(i));
  }
  tokens.resize(LengthToEnd(tokens, end_ids_, keeps_end_));
  return tokens;
}

// Drafts of samples, which the step verifies. There is one sample for each row.
// No continuation follows such a step. Rows ahead of its result may, if a draft
// model drafts for each row within both steps (DraftSequence::verified_by).
struct SampleDrafts {
  // Tokens that each row feeds after its last one. [num_rows]; empty: there are
  // no drafts, and all fields are unset.
  std::vector<std::vector<TokenId>> tokens = {};
  // Logits that a draft model drew the drafts from: [num_rows], at least one
  // row for each drafted token. Empty: the drafts were not sampled (verify.h).
  std::vector<DraftLogits> logits = {};
  // Written by a GPU executor: drafts that its device is still sampling while
  // the host prepares the step (PendingDraft). [num_rows], or empty if none
  // is. An entry is empty if the row's draft is in `tokens`; otherwise `tokens`
  // has as many zeros for it.
  std::vector<PendingDraft> pending = {};
  // Written by a GPU executor: drafts that the preceding plan verifies and
  // whose result the host has not read. [num_rows], or empty. If the device
  // accepts `a` tokens of row r's draft and samples `t` after them
  // (VerifiedDraft), row r starts with token `t`, `a` positions later than
  // planned, and its num_generated is larger by `a`. This selection and its
  // rows assume a = 0 and any `t`; the row's pages cover every `a`.
  //
  // Cumulative scores are unknown: each candidate of the result has its own
  // log-probability alone.
  std::vector<PendingDraft> verified_before = {};
  // Rows ahead: they were written before the result of the preceding plan was
  // read, which has the same samples, and assume that it accepts no drafted
  // token and that one token of any value follows. So a row begins a position
  // after the sample's last known token, and its num_generated is larger by
  // one. All other fields, and the sequences of StepPlan::drafting, are those
  // before that result. A row's pages cover every result. The executor
  // completes the rows (executor/drafts/rows_ahead.h): samples that have ended
  // feed nothing and are not in the result. Only an EOS id ends these samples;
  // none reaches max_new_tokens in the earlier step.
  bool is_ahead = false;
  // Largest length of each draft. Sampled drafts end early at the end of a
  // text, but capacity is reserved for this length: if it depended on the
  // sampled length, short drafts would be verified more often, which would bias
  // the distribution of the output.
  int max_tokens = 0;

  bool empty() const { return tokens.empty(); }
};

// Drafted paths that beams may take, one plan row for each: row i feeds the
// last token of beam ranks[i], then drafts[i]. A beam may have several rows,
// and one without a path has a row with its own token alone. The result covers
// as many steps as the paths decide (SelectionResult::further).
struct PathRows {
  std::vector<int> ranks = {};  // ascending, every beam at least once
  std::vector<std::vector<TokenId>> drafts = {};  // [ranks]

  bool empty() const { return ranks.empty(); }
  // Returns the number of tokens that each row feeds: one, and its drafts.
  std::vector<int> num_tokens() const;
  // Returns the number of tokens of all rows beyond one token of each of
  // `num_beams` beams.
  int num_drafted(int num_beams) const;
};

// Beam search of drafted sequences, which are its live beams in rank order.
// Fields as in PlanSelection.
struct DraftedSearch {
  int num_beams = 1;  // largest number of live beams
  int num_candidates = 1;
  std::vector<TokenId> eos_token_ids;  // ascending
};

// Plan row that verifies a draft, and its selection and row in the selection.
// The row is planned for DraftSequence::num_tokens drafted tokens; FillDrafts
// inserts the actual ones (executor/drafts/fill_drafts.h).
struct DraftTarget {
  int plan_row = -1;  // none
  int selection = -1;
  int rank = 0;
};

// Sequence that the executor's draft model drafts tokens for
// (docs/speculation.md). This step or a later one verifies the draft. The draft
// model keeps its state of each sequence, by request and sample, until the
// request ends. It compares the state with the sequence's tokens, so the plan
// does not say which tokens of the last draft were accepted.
//
// Beams of one search are drafted together: the draft model continues their
// beam search by num_tokens steps.
struct DraftSequence {
  RequestId request;
  int sample = 0;  // index in the request, or the beam's rank
  std::shared_ptr<const std::vector<TokenId>> prompt;  // not null
  std::vector<TokenId> generated = {};  // at least one; the last is not fed
  int num_tokens = 1;                   // to draft at most, >= 1
  // Sampling parameters of the request.
  std::shared_ptr<const SelectionParams> params;
  // The rows of this step that verify the draft; otherwise a later plan does:
  // for a beam, and for a sample with a constraint, whose legal tokens depend
  // on the draft.
  DraftTarget verified_by = {};
  // For a sample with a constraint: only tokens that are legal behind
  // `generated` are drafted, from the place there. Null: all tokens are legal.
  std::shared_ptr<const Constraint> constraint = nullptr;
  ConstraintPlace place = {};
  // As SampleDrafts::verified_before. `generated` ends before that draft; the
  // new draft begins where verification of that draft ends.
  PendingDraft verified_before = {};
  // For a beam: its cumulative score and its search; null for a sample. A plan
  // drafts for all live beams of a search, to one length.
  float cum_log_prob = 0;
  std::shared_ptr<const DraftedSearch> search = nullptr;
};

// Drafted continuation of a beam, and the cumulative score at its end, by which
// the paths of a search rank.
struct DraftPath {
  std::vector<TokenId> tokens;
  float cum_log_prob = 0;
};

// Result of one DraftSequence.
struct DraftedTokens {
  std::vector<TokenId> tokens = {};  // num_tokens at most, may be empty
  // For a beam, in place of `tokens`: every path that the draft model's search
  // took from it, up to the point where it was pruned. No path is a prefix of
  // another.
  std::vector<DraftPath> paths = {};
  // Logits that the tokens were drawn from, [tokens, vocab_size]; empty unless
  // NeedsDraftLogits.
  DraftLogits logits = {};
  // Set while a device samples the draft, until the verifying step has ended.
  // Then `tokens` has as many zeros.
  PendingDraft pending = {};
  // True: there is no draft, because the draft model lacks more tokens of the
  // sequence than remain of StepPlan::max_draft_step_tokens after the sequences
  // that lack fewer.
  bool is_behind = false;
};

}  // namespace espalier
