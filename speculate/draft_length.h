// DraftLength: how many tokens to draft for a sequence in its next step: as
// many as give the most tokens for the cost. Where a step that verifies k > 0
// drafts costs 1 + wait + k * (row + draft), and a_i is the chance that the
// i-th is accepted if those before it are, it yields
//
//   E(k) = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_k          tokens
//
// (Leviathan et al. 2023, section 3.3), and k is the one with the greatest
// E(k) over that cost; of equals the smallest. That is 0 where drafts do not
// pay. The a_i are averages of what verification accepted, the
// older the less; they begin at a guess that is high, so that drafting begins.
//
// While 0 is best, it drafts one token now and then, to see whether that has
// changed: after probe_interval steps, then after twice as many each time that
// it has not, up to max_probe_interval. Not so where no acceptance would pay.
//
//   const int num_tokens = length.Next({.row = 0.05});
//   drafter.Draft(num_tokens, &draft);
//   ...
//   length.Record(draft.size(), num_accepted);
//
// It depends on these calls only: no clock, no chance.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "request/speculation_params.h"

namespace espalier {

// What drafts cost beside a step of the model without any, which is 1; >= 0.
struct DraftCost {
  double row = 0;    // to verify one more token at the present load
  double draft = 0;  // to draft one: 0 from history
  // Whatever their number: that a step with drafts waits for the answer before
  // it. 0 where steps without drafts do so, too.
  double wait = 0;
};

// The best k in [0, acceptance.size()].
//   acceptance  [k]  of the i-th draft, if those before it are accepted
int BestDraftLength(std::span<const double> acceptance, const DraftCost& cost);

struct DraftLengthOptions {
  int max_tokens = 5;     // in [1, kMaxDraftTokens]
  bool is_fixed = false;  // max_tokens in every step, whatever pays
  // The guess, and how many observations it counts for.
  double prior_acceptance = 0.8;
  double prior_weight = 4;
  // What an observation is worth a draft later, be that of another sequence: at
  // 0.95 the last 20 count. In (0, 1).
  double decay = 0.95;
  int probe_interval = 8;  // >= 1
  int max_probe_interval = 64;
};

class DraftLength {
 public:
  explicit DraftLength(const DraftLengthOptions& options = {});

  // Tokens to draft in the next step, in [0, max_tokens].
  int Next(const DraftCost& cost);

  // Of `num_drafted` tokens that a step verified, the first `num_accepted` were
  // accepted. Nothing changes where none were drafted: a history without a hint
  // is not a rejection. REQUIRES: 0 <= num_accepted <= num_drafted.
  void Record(int num_drafted, int num_accepted);

  // A step had no room to verify `num_drafted` tokens, which says nothing of
  // their acceptance. The next draft is half as long, and one more with each
  // that is verified; where a single token finds no room, 1, 2, 4 and then 8
  // steps draft nothing. A fixed length stays.
  void RecordUnverified(int num_drafted);

  // The estimate for the i-th draft, from 0, if those before it are accepted.
  double acceptance(int i) const { return Acceptance()[i]; }

 private:
  // Sums over observations, each worth decay^(drafts recorded since).
  struct Average {
    double num_accepted = 0;
    double num_observed = 0;
  };

  std::vector<double> Acceptance() const;

  DraftLengthOptions options_;
  std::vector<Average> averages_;  // [max_tokens]
  // Of steps without drafts: how many there were since the last probe, and
  // after how many the next one is.
  int num_idle_steps_ = 0;
  int probe_interval_;
  // What finds room: tokens; steps that draft nothing for lack of it, and how
  // many these are the next time.
  int max_verified_;
  int num_steps_to_skip_ = 0;
  int skip_interval_ = 1;
};

}  // namespace espalier
