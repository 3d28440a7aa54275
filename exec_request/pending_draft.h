// PendingDraft: the tokens of one draft that a GPU samples while the plan that
// verifies them is on its way (DraftSampler). The host does not wait for them:
// the step that verifies them follows on the same stream and reads them there.
// The host reads them when that step has ended. Copies share the memory, which
// is reused when the last copy is destroyed; the executor holds one until the
// step has ended.
//
//   stream   k steps of the draft model ─> tokens ─> step: place tokens, verify
//
// The step may write the verification result to device memory. Then the next
// draft of the sequence, and the step that verifies it, begin there without the
// host.
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
#include "kernels/verify/verified_draft.h"

namespace espalier {

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

}  // namespace espalier
