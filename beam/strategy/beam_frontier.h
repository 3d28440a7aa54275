// BeamFrontier: the live beams of a search, its finished hypotheses, and the
// update of both by a step's candidates. With k = num_beams and candidates in
// ranking order:
//
// - candidates among the first k that meet the stopping criteria
//   (stopping_criteria.h) enter the finished pool;
// - the first k that continue live on; if candidates are sampled, the k that
//   continue with the highest cum_log_prob. Ordered by falling cum_log_prob.
//
// Every beam search is built from frontiers. Searches differ in the source of
// candidates, their ranking, and the termination.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/finished_pool.h"
#include "beam/strategy/length_penalty.h"
#include "beam/strategy/stopping_criteria.h"
#include "beam/strategy/token_tree.h"
#include "constrain/constraint.h"
#include "request/generation_params.h"

namespace espalier {

struct LiveBeam {
  TokenTree::Node node = TokenTree::kRoot;
  float cum_log_prob = 0;
  StoppingCriteria::Progress progress = {};
  Continuation from = {};  // its parent among the last step's beams
  int candidate_idx = 0;   // in that step's result
};

// A candidate of the frontier's beams.
struct RankedCandidate {
  Candidate candidate;    // `beam` is the row of the step, over all frontiers
  int beam = 0;           // index in this frontier
  int candidate_idx = 0;  // in the step's result
};

// Ranks a step's result for a frontier of all its rows, in the given order.
// Overwrites `*ranked`.
void RankAsGiven(std::span<const Candidate> candidates,
                 std::vector<RankedCandidate>* ranked);

class BeamFrontier {
 public:
  struct Step {
    int length = 0;          // generated tokens, including this step
    bool is_last = false;    // every candidate ends
    bool are_drawn = false;  // rank in sampling order, not by sum
    std::vector<Decision>* decisions = nullptr;  // may be null
    // Finish reason of beams in FinishAll that have no other one.
    FinishReason reason = FinishReason::kLength;
  };

  // Starts with one live beam, the root. If `parent_ranks` is not null, it
  // receives the rank of each new node's parent among the live beams, by node:
  // the frontier then appends all nodes of the tree. All pointers outlive this.
  BeamFrontier(int num_beams, int pool_capacity,
               const StoppingCriteria* criteria, const LengthPenalty* penalty,
               TokenTree* tree, std::vector<int>* parent_ranks = nullptr);

  // Applies the candidates of a step, by rank. Each gets a decision; one that
  // both ends and continues gets two.
  void Advance(std::span<const RankedCandidate> candidates, const Step& step);

  // Finishes all live beams after Advance, with a second decision for each.
  void FinishAll(const Step& step);

  // By rank.
  std::span<const LiveBeam> live() const { return live_; }
  void Clear() { live_.clear(); }
  // Beams that lived before the last Advance.
  std::span<const LiveBeam> previous() const { return next_; }
  const FinishedPool& finished() const { return finished_; }

 private:
  // Finishes a candidate, or keeps it as a beam, or both. Returns false if it
  // becomes neither.
  bool Take(const RankedCandidate& ranked, const Step& step, bool may_finish,
            bool may_live, std::vector<LiveBeam>* next);
  FinishedBeam Finish(TokenTree::Node node, float cum_log_prob, int length,
                      FinishReason reason);

  const int num_beams_;
  const StoppingCriteria* const criteria_;
  const LengthPenalty* const penalty_;
  TokenTree* const tree_;
  std::vector<int>* const parent_ranks_;  // may be null
  FinishedPool finished_;
  std::vector<LiveBeam> live_;
  std::vector<LiveBeam> next_;  // in Advance; afterwards the previous beams
};

// Returns the number of candidates of `beams` that a step needs so that
// num_beams continue, whichever candidates end: as in transformers, max(2, 1 +
// number of ids that end a sequence) * num_beams. With a constraint, adds the
// tokens after which nothing may follow instead.
int NumCandidates(std::span<const LiveBeam> beams,
                  const StoppingCriteria& criteria, int num_beams);
// Returns the largest value of NumCandidates for any beams of a frontier, which
// are different sequences.
int64_t MaxNumCandidates(const GenerationParams& params,
                         const Constraint* constraint, int64_t num_beams);

// Sets the continuations of `beams`, by rank.
void AssignContinuations(std::span<const LiveBeam> beams,
                         Continuations* continuations);

// Returns the first `count` of a pool as hypotheses of a result.
std::vector<Hypothesis> HypothesesOf(std::span<const FinishedBeam> beams,
                                     int count, const TokenTree& tree);

// Append the states that a search shows, of live beams with `length` tokens and
// of the first `count` of a pool.
void AppendStates(std::span<const LiveBeam> beams, int length,
                  const LengthPenalty& penalty,
                  std::vector<SequenceState>* states);
void AppendStates(std::span<const FinishedBeam> beams, int count,
                  std::vector<SequenceState>* states);

}  // namespace espalier
