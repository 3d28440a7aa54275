// DraftSearch: a beam search of the draft model that starts from the live beams
// of the target model's search and has the same rules. It predicts the beams of
// the target's next steps.
//
//   DraftSearch search(beams);     // DraftSequences of one request
//   search.Choose(rank, logits);   // for each live beam
//   for (const DraftSearch::Beam& beam : search.Advance()) ...
//   search.TakePaths(drafts);      // all paths of the search
//
// The target may rank beams differently, and drafts save a step only if all of
// its beams are among them. The candidates that rank next after the beams are
// therefore paths too, as many again, but the search does not extend them.
//
// The caller assigns rows of logits to beams and feeds the model
// (draft_model.h).
//
// Thread safety: several threads may call Choose() for different ranks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "kernels/logits/score_edits.h"
#include "kernels/select/select.h"

namespace espalier {

class DraftSearch {
 public:
  // Candidates per step that become paths, as a multiple of num_beams. On
  // models/en-fr, drafts of models/en-fr-draft save 12%, 23% and 28% of steps
  // for values 1, 2 and 3 with 4 beams; 28%, 34% and 36% with 2 beams. The
  // number of rows grows with it.
  static constexpr int kBreadth = 2;

  // A live beam: the child of beam `parent_rank` of the last step by `token`.
  struct Beam {
    int parent_rank = 0;
    TokenId token = 0;
  };

  // REQUIRES: `beams` are the live beams of one request, in rank order, and
  // outlive the search.
  explicit DraftSearch(std::span<const DraftSequence> beams);

  const DraftSequence& first() const { return beams_.front(); }
  int num_live() const { return static_cast<int>(live_.size()); }
  // True if the paths have the requested length or no beam is live.
  bool is_done() const { return live_.empty() || num_steps_ >= max_steps_; }

  // Reads the row of logits of a live beam.
  //   generated  the tokens after the prompt
  void Choose(int rank, std::span<const TokenId> generated,
              std::span<const float> logits);
  // Returns the next beams, by rank.
  // REQUIRES: Choose() was called for all live beams.
  std::vector<Beam> Advance();

  // Writes the paths to the results of the initial beams, by rank.
  void TakePaths(std::span<DraftedTokens> drafts) const;

 private:
  struct Node {
    int parent = -1;  // -1: an initial beam
    TokenId token = 0;
    float cum_log_prob = 0;
    bool has_child = false;
  };

  const std::span<const DraftSequence> beams_;
  const std::shared_ptr<const ScoreEdits> edits_;
  const int max_steps_;
  std::vector<Node> nodes_;                      // the initial beams first
  std::vector<int> live_;                        // nodes, by rank
  std::vector<std::vector<TokenScore>> chosen_;  // by rank
  int num_steps_ = 0;
};

}  // namespace espalier
