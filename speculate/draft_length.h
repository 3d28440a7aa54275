// DraftLength: chooses the number of tokens to draft for a sequence in its next
// step, so as to maximise tokens per cost. A step that verifies k > 0 drafts
// costs 1 + wait + k * (row + draft). If a_i is the probability that draft i is
// accepted, given that all earlier ones are, the step yields
//
//   E(k) = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_k          tokens
//
// (Leviathan et al. 2023, section 3.3). DraftLength returns the smallest k that
// maximises E(k) / cost, or 0 if drafts do not pay. The a_i are exponentially
// decayed averages of past verifications. Their prior is high, so that drafting
// begins.
//
// While 0 is best, it probes with a single token: after probe_interval steps,
// then after twice as many each time, up to max_probe_interval. It does not
// probe if drafts would not pay even if all were accepted.
//
//   const int num_tokens = length.Next({.row = 0.05});
//   drafter.Draft(num_tokens, &draft);
//   ...
//   length.Record(draft.size(), num_accepted);
//
// It is deterministic: it uses no clock and no random numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "request/speculation_params.h"

namespace espalier {

// Cost of drafts relative to a step of the model without drafts; >= 0.
struct DraftCost {
  double row = 0;    // per verified token at the present load
  double draft = 0;  // per drafted token; 0 from history
  // Fixed cost of a step with drafts: it waits for the previous result. 0 if
  // steps without drafts wait, too.
  double wait = 0;
};

// Returns the best k in [0, acceptance.size()].
//   acceptance  [k]  probability a_i, given that earlier drafts are accepted
int BestDraftLength(std::span<const double> acceptance, const DraftCost& cost);

struct DraftLengthOptions {
  int max_tokens = 5;     // in [1, kMaxDraftTokens]
  bool is_fixed = false;  // always draft max_tokens
  // Prior of each a_i, and its weight in observations.
  double prior_acceptance = 0.8;
  double prior_weight = 4;
  // Decay of an observation's weight per recorded draft: 0.95 averages over
  // about 20. In (0, 1).
  double decay = 0.95;
  int probe_interval = 8;  // >= 1
  int max_probe_interval = 64;
};

class DraftLength {
 public:
  explicit DraftLength(const DraftLengthOptions& options = {});

  // Returns the number of tokens to draft in the next step, in [0, max_tokens].
  int Next(const DraftCost& cost);

  // Records that the first `num_accepted` of `num_drafted` verified tokens were
  // accepted. An empty draft changes nothing, because a history without a match
  // is not a rejection.
  // REQUIRES: 0 <= num_accepted <= num_drafted.
  void Record(int num_drafted, int num_accepted);

  // Records that a step had no capacity to verify `num_drafted` tokens. The
  // acceptance estimates do not change. The next draft has half the length, and
  // each verified draft allows one token more; after a single unverified token,
  // the next 1, 2, 4 and then 8 steps draft nothing. A fixed length stays.
  void RecordUnverified(int num_drafted);

  // Returns the estimate of a_(i + 1).
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
  // Steps without drafts since the last probe, and steps between probes.
  int num_idle_steps_ = 0;
  int probe_interval_;
  // Draft length that steps have capacity for; steps left without drafts for
  // lack of capacity, and their number the next time.
  int max_verified_;
  int num_steps_to_skip_ = 0;
  int skip_interval_ = 1;
};

}  // namespace espalier
