// StepCosts: what tokens cost on this machine, learnt from how long steps took,
// so that as many tokens are drafted as pay (speculate/draft_length.h).
//
// A step that decodes is taken to last a + b * tokens: a straight line through
// the last steps, each worth 0.99 of the one after it. Where weights are read
// from memory a is most of it, and where a processor computes as long as it
// reads, as it does for a small model or many sequences, b is. If R sequences
// run, each with k drafts, a step lasts a + b * R * (1 + k), so that
//
//   DraftCost::row    R * b / (a + b * R)
//   DraftCost::draft  R * (time to draft a token) / (a + b * R)
//
// R is a number of sequences, though several rows of a step may feed paths of
// one beam. The time to draft a token is that of a row of logits of the draft
// model, without what it fed to catch up, whether it drafts for samples or
// searches on from beams, on the host or beside a GPU.
//
// Where plans run ahead of answers, a group that drafts from history, or for
// beams, does not: the device waits until the host has read an answer and sent
// the next plan. DraftCost::wait is that time by the step's, for one answer of
// those that drafts wait for (BeamGroup::NumWaitsToDraft). Some steps are held
// up by what happens once, so it is the least of the last 16.
//
// Who finds drafts too dear asks for none, and learns nothing more. So what
// they cost is taken to be unknown again when 64 steps or more without any have
// lasted 50 times as long as the last drafts: 2% of the time is for trying. The
// next drafts then count alone.
//
// Executors that report no times leave the costs unknown. Belongs to its
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
  // A step fed so many tokens, each with a row of logits, and nothing else.
  void RecordStep(int num_tokens, absl::Duration forward_time);
  // A step that was planned when no other ran took so long beside the time on
  // its device: the way there and back.
  void RecordWait(absl::Duration wait);
  // A draft model computed so many rows of logits: one for each token that it
  // drew, or for each beam that it searched on from.
  void RecordDrafts(int num_rows, absl::Duration draft_time);

  // Beside a step of so many sequences, for a group that drafts from history
  // or, `by_model`, with a draft model, whose drafts cost no more than
  // GroupDrafts::kModelCost when what they cost is unknown again. Nothing while
  // it is not known yet: too few steps, or all of the same number of tokens.
  std::optional<DraftCost> At(int num_sequences, bool by_model) const;

 private:
  // Whether what drafts cost is to be tried again.
  bool is_draft_cost_old() const;

  // Weighted sums over steps, of tokens x and seconds y.
  struct Sums {
    double weight = 0, x = 0, y = 0, xx = 0, xy = 0;
  };

  Sums steps_;
  static constexpr int kNumWaits = 16;
  std::array<double, kNumWaits> waits_ = {};  // seconds, the last ones
  int64_t num_waits_ = 0;
  double drafted_ = 0;  // rows
  double draft_seconds_ = 0;
  double last_draft_seconds_ = 0;
  double idle_seconds_ = 0;  // of steps since
  int64_t num_idle_steps_ = 0;
};

}  // namespace espalier
