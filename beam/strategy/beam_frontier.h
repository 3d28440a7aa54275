// BeamFrontier: the live beams of a search, the hypotheses that it has
// finished, and how a step's candidates make the next of both. With k =
// num_beams, candidates in the order in which they rank:
//
//   - those of the first k that hit (stopping_criteria.h) enter the finished
//     pool;
//   - the first k that go on live on, or if they are drawn the k of the highest
//     cum_log_prob; by falling cum_log_prob.
//
// Every search by beams is made of frontiers: what differs is where candidates
// come from, how they rank, and when it is over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "beam/strategy/allowed_sequence_trie.h"
#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/finished_pool.h"
#include "beam/strategy/length_penalty.h"
#include "beam/strategy/stopping_criteria.h"
#include "beam/strategy/token_tree.h"
#include "request/generation_params.h"

namespace espalier {

struct LiveBeam {
  TokenTree::Node node = TokenTree::kRoot;
  float cum_log_prob = 0;
  StoppingCriteria::Progress progress = {};
  Continuation from = {};  // how it came from a beam of the last step
  int candidate_idx = 0;   // in that step's answer
};

// A candidate of the frontier's beams.
struct RankedCandidate {
  Candidate candidate;    // `beam` is the row of the step, over all frontiers
  int beam = 0;           // of this frontier
  int candidate_idx = 0;  // in the step's answer
};

// A step's answer as a frontier of all its rows ranks it: as it is. Into
// `*ranked`, whatever it held.
void RankAsGiven(std::span<const Candidate> candidates,
                 std::vector<RankedCandidate>* ranked);

class BeamFrontier {
 public:
  struct Step {
    int length = 0;          // tokens generated with it
    bool is_last = false;    // every candidate ends
    bool are_drawn = false;  // candidates rank as they were drawn, not by sum
    std::vector<Decision>* decisions = nullptr;  // or null
    // As what FinishAll ends a beam that nothing else does.
    FinishReason reason = FinishReason::kLength;
  };

  // One beam is live, from which all begin. `criteria`, `penalty` and `tree`
  // outlive this.
  BeamFrontier(int num_beams, int pool_capacity,
               const StoppingCriteria* criteria, const LengthPenalty* penalty,
               TokenTree* tree);

  // Takes the candidates of a step, by rank. Each gets a decision; one that
  // ends and goes on gets two.
  void Advance(std::span<const RankedCandidate> candidates, const Step& step);

  // Finishes all live beams, which are those that the step made; decides on
  // them once more.
  void FinishAll(const Step& step);

  // By rank.
  std::span<const LiveBeam> live() const { return live_; }
  void Clear() { live_.clear(); }
  // Those that lived before the last Advance.
  std::span<const LiveBeam> previous() const { return next_; }
  const FinishedPool& finished() const { return finished_; }

 private:
  // Makes what it can be of a candidate; returns whether it became anything.
  bool Take(const RankedCandidate& ranked, const Step& step, bool may_finish,
            bool may_live, std::vector<LiveBeam>* next);
  FinishedBeam Finish(TokenTree::Node node, float cum_log_prob, int length,
                      FinishReason reason);

  const int num_beams_;
  const StoppingCriteria* const criteria_;
  const LengthPenalty* const penalty_;
  TokenTree* const tree_;
  FinishedPool finished_;
  std::vector<LiveBeam> live_;
  std::vector<LiveBeam> next_;  // of Advance; then those before it
};

// How many candidates of `beams` a step needs so that num_beams go on if so
// many can, whichever hit: as in transformers, max(2, 1 + how many ids end a
// sequence) * num_beams; where sequences are allowed, those that nothing may
// follow are counted.
int NumCandidates(std::span<const LiveBeam> beams,
                  const StoppingCriteria& criteria, int num_beams);
// And at most, of any beams; no two of a frontier come to the same allowed
// sequence.
int64_t MaxNumCandidates(const GenerationParams& params,
                         const AllowedSequenceTrie* allowed, int64_t num_beams);

// What `beams` go on from, by rank.
void AssignContinuations(std::span<const LiveBeam> beams,
                         Continuations* continuations);

// The first `count` of a pool, as a result has them.
std::vector<Hypothesis> HypothesesOf(std::span<const FinishedBeam> beams,
                                     int count, const TokenTree& tree);

// What a search shows of live beams of `length` tokens, and of the first
// `count` of a pool.
void AppendStates(std::span<const LiveBeam> beams, int length,
                  const LengthPenalty& penalty,
                  std::vector<SequenceState>* states);
void AppendStates(std::span<const FinishedBeam> beams, int count,
                  std::vector<SequenceState>* states);

}  // namespace espalier
