// PrefillShare: decides which steps are for prompts alone. Prompts have a fixed
// share of a step's tokens. A step in which decoding leaves them less adds the
// difference to a debt. When the debt is a whole step, that step is for prompts
// alone, and pays it.
//
//   a step of 8 tokens, a share of 4, sequences that leave 2
//
//     debt   2  4  6  8  2 ...
//     step   d  d  d  p  d ...     d: decodes, p: prompts alone
//
// Invariants: of two steps in a row at least one decodes. There is no debt
// after a step that leaves prompts enough, or for which none can be fed.
//
// Knows no groups. Belongs to its scheduler's strand.
#pragma once

#include <algorithm>
#include <cstdint>

namespace espalier {

class PrefillShare {
 public:
  // `share`: SchedulerOptions::prefill_share. At least one token, unless it is
  // 0: beside a group wider than a step, a request is fed only in steps for
  // prompts alone.
  // REQUIRES: 0 <= share <= 1, max_step_tokens >= 1.
  PrefillShare(double share, int max_step_tokens)
      : max_step_tokens_(max_step_tokens),
        num_tokens_(std::max(static_cast<int64_t>(share * max_step_tokens),
                             int64_t{share > 0})) {}

  // True if `num_left` tokens of a step are less than the share.
  bool IsShort(int64_t num_left) const { return num_left < num_tokens_; }

  // Chooses the next step, called once for each: true if it is for prompts
  // alone. `owes`: decoding leaves `num_left` tokens, IsShort() of them, and
  // some prompt can be fed.
  bool IsNextForPrefillAlone(int64_t num_left, bool owes) {
    debt_ = owes ? debt_ + num_tokens_ - num_left : 0;
    was_for_prefill_alone_ =
        debt_ >= max_step_tokens_ && !was_for_prefill_alone_;
    if (was_for_prefill_alone_) debt_ -= max_step_tokens_;
    return was_for_prefill_alone_;
  }

 private:
  const int max_step_tokens_;
  const int64_t num_tokens_;  // share of prompts in a step
  int64_t debt_ = 0;          // tokens that prompts lack
  bool was_for_prefill_alone_ = false;
};

}  // namespace espalier
