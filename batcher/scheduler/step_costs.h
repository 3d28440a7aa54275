// StepCosts: costs of tokens on this machine, estimated from the duration of
// steps, so that the number of drafted tokens is profitable
// (speculate/draft_length.h).
//
// The duration of a decoding step is modelled as a + b * tokens: a linear
// regression over recent steps with weights that decay by 0.99 per step. If
// reading weights from memory dominates, a is most of it; if computing takes as
// long as reading, as for a small model or many sequences, b is. If R sequences
// run, each with k drafts, a step lasts a + b * R * (1 + k), so
//
//   DraftCost::row    R * b / (a + b * R)
//   DraftCost::draft  R * (time to draft a token) / (a + b * R)
//
// R is a number of sequences, though several rows of a step may feed paths of
// one beam. The time to draft a token is the time per row of logits of the
// draft model, without the tokens fed to catch up, both for samples and for
// beam searches, on the host or beside a GPU.
//
// If plans run ahead of results, a group that drafts from history, or for
// beams, does not: the device waits until the host has read a result and sent
// the next plan. DraftCost::wait is this time relative to a step, for each
// result that drafts wait for (SequenceGroup::NumWaitsToDraft). One-off delays
// hold up some steps, so it is the minimum of the last 16.
//
// If drafts appear too expensive, no group requests any, and nothing more is
// learned. So their cost is reset to unknown after at least 64 steps without
// drafts that lasted 50 times as long as the last drafts: 2% of the time is
// spent on trying. Only later drafts count then.
//
// The costs remain unknown if the executor reports no times. Belongs to its
// scheduler's strand.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "speculate/draft_length.h"

namespace espalier {

class StepCosts {
 public:
  // Records a step that fed `num_tokens` tokens, each with a row of logits, and
  // nothing else.
  void RecordStep(int num_tokens, absl::Duration forward_time);
  // Records the round-trip time of a step that was planned when no other one
  // ran: its duration minus the time on its device.
  void RecordWait(absl::Duration wait);
  // Records that a draft model computed `num_rows` rows of logits: one for each
  // sampled token, or for each beam that it extended.
  void RecordDrafts(int num_rows, absl::Duration draft_time);

  // Returns the costs relative to a step of `num_sequences` sequences, for a
  // group that drafts from history or, `by_model`, with a draft model. If the
  // cost of a draft model was reset to unknown, it is at most
  // GroupDrafts::kModelCost. Returns nothing while the costs are unknown: too
  // few steps, or all with the same number of tokens.
  std::optional<DraftCost> At(int num_sequences, bool by_model) const;

 private:
  // True if the cost of drafts is to be measured again.
  bool is_draft_cost_old() const;

  // Weighted sums over steps, of tokens x and seconds y.
  struct Sums {
    double weight = 0, x = 0, y = 0, xx = 0, xy = 0;
  };

  Sums steps_;
  static constexpr int kNumWaits = 16;
  std::array<double, kNumWaits> waits_ = {};  // seconds, the most recent ones
  int64_t num_waits_ = 0;
  double drafted_ = 0;  // rows
  double draft_seconds_ = 0;
  double last_draft_seconds_ = 0;
  double idle_seconds_ = 0;  // duration of steps since then
  int64_t num_idle_steps_ = 0;
};

}  // namespace espalier
