// DraftSearch: the beam search that a draft model runs on from the live beams
// of another one, by the same rules, to guess which beams that will have.
//
//   DraftSearch search(beams);     // DraftSequences of one request
//   search.Choose(rank, logits);   // of each live beam
//   for (const DraftSearch::Beam& beam : search.Advance()) ...
//   search.TakePaths(drafts);      // every path that it took
//
// The other search may rank its beams otherwise, and drafts help it only while
// all of its beams are among them. So the candidates that come next after the
// beams are paths, too: as many again, which go no further.
//
// Which row of logits is which beam's, and what the model has fed, is its
// user's business (draft_model.h).
//
// Choose may be called by several threads, each with ranks of its own.
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
  // Candidates of a step that are paths, in beams. Steps of models/en-fr, of
  // which models/en-fr-draft saves some: with 4 beams 12% at 1, 23% at 2 and
  // 28% at 3; of 2 beams 28%, 34% and 36%. The rows that it takes grow as it
  // does.
  static constexpr int kBreadth = 2;

  // A live beam: the child of beam `parent_rank` of the last step by `token`.
  struct Beam {
    int parent_rank = 0;
    TokenId token = 0;
  };

  // From the live beams of one request, in rank order; which outlive this.
  explicit DraftSearch(std::span<const DraftSequence> beams);

  const DraftSequence& first() const { return beams_.front(); }
  // Beams that live.
  int num_live() const { return static_cast<int>(live_.size()); }
  // Whether its paths are as long as asked for, or no beam lives.
  bool is_done() const { return live_.empty() || num_steps_ >= max_steps_; }

  // Reads the row of logits of a live beam.
  //   generated  the tokens after the prompt
  void Choose(int rank, std::span<const TokenId> generated,
              std::span<const float> logits);
  // When all are read: the next beams, by rank.
  std::vector<Beam> Advance();

  // Into the answers of the beams that it began with, by rank.
  void TakePaths(std::span<DraftedTokens> drafts) const;

 private:
  struct Node {
    int parent = -1;  // of the first beams: none
    TokenId token = 0;
    float cum_log_prob = 0;
    bool has_child = false;
  };

  const std::span<const DraftSequence> beams_;
  const std::shared_ptr<const ScoreEdits> edits_;
  const int max_steps_;
  std::vector<Node> nodes_;  // the first beams', then the others
  std::vector<int> live_;    // nodes, by rank
  std::vector<std::vector<TokenScore>> chosen_;  // by rank
  int num_steps_ = 0;
};

}  // namespace espalier
