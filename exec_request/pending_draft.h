// PendingDraft: the tokens of one draft that a GPU samples while the plan that
// verifies them is on its way (DraftSampler). The host does not wait for them:
// the step that verifies them waits on the device and reads them there. The
// host reads them when that step has ended. Copies share the memory, which is
// reused when the last copy is destroyed.
//
//   sampler's stream   k steps of the draft model ─> tokens ─> event
//   executor's stream              wait for the event ─> place tokens ─> step
//
// Ordering:
//
// - Tokens are written before they are placed: the executor's stream waits for
//   the event (cudaStreamWaitEvent).
// - Tokens are written before the host reads them: the end of the step follows
//   that wait.
// - Tokens are read before they are overwritten: memory is reused when the last
//   copy is destroyed, and the executor holds one until its step has ended.
//
// The step may write the verification result to device memory
// (draft_verification.h). Then the next draft of the sequence, and the step
// that verifies it, begin there without the host.
//
// Thread safety: a plain value.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/small_vector.h"
#include "exec_request/draft_end.h"
#include "exec_request/draft_verification.h"
#include "kernels/verify/verified_draft.h"

namespace espalier {

class PendingDraft {
 public:
  // Makes an empty draft.
  PendingDraft() = default;
  //   tokens  pinned host memory, mapped on GPUs at the same address: token i
  //           is tokens[i * stride]; negative if it could not be sampled, and
  //           then later tokens are meaningless
  //   event   a cudaEvent_t after the writes of all tokens; owned by `tokens`.
  //           Null: they are written
  //   verification, verified  `verified`, in pinned memory too, receives the
  //           verification result; `verification` signals that the results of
  //           all drafts of the run are written. Null: unused. `tokens` owns
  //           both
  PendingDraft(std::shared_ptr<const TokenId> tokens, int stride,
               int num_tokens, void* event,
               DraftVerification* verification = nullptr,
               VerifiedDraft* verified = nullptr)
      : tokens_(std::move(tokens)),
        stride_(stride),
        num_tokens_(num_tokens),
        event_(event),
        verification_(verification),
        verified_(verified) {}

  bool empty() const { return num_tokens_ == 0; }
  int num_tokens() const { return num_tokens_; }
  const TokenId* tokens() const { return tokens_.get(); }
  int stride() const { return stride_; }
  void* event() const { return event_; }
  DraftVerification* verification() const { return verification_; }
  VerifiedDraft* verified() const { return verified_; }

  // REQUIRES: the event has happened.
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
  void* event_ = nullptr;
  DraftVerification* verification_ = nullptr;
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

}  // namespace espalier
