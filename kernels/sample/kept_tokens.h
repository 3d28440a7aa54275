// KeptTokens: the tokens of a row that the sampling filters (sample.h) keep,
// and their weights.
//
// If filters can keep only few tokens, because of top_k or min_p or because so
// few have the mass of top_p, these are listed and all filters work on the
// list, in double. Otherwise each filter moves a cut in the order of scores, or
// of distances (top_p_threshold.h). The float32 weights are then summed, block
// by block, but never stored. Only lists of a few tokens are ever sorted.
//
// Thread safety: one thread, with one live object at a time (scratch.h). Points
// into the row.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/sample/processed_logits.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/top_p_threshold.h"

namespace espalier {

class KeptTokens {
 public:
  // True if the filters use the moments that ProcessedLogits can keep.
  static bool AsksMoments(const SamplingParams& params, int vocab_size);

  // REQUIRES: row.max() > -inf; params not greedy.
  KeptTokens(ProcessedLogits& row, const SamplingParams& params);

  // Returns the token at which the cumulative distribution over ascending
  // tokens exceeds `uniform`.
  TokenId Draw(double uniform) const;

  // Returns the probability of drawing `token`; 0 if a filter drops it.
  double Probability(TokenId token) const;

  // Writes the weight of every token, 0 for dropped ones, and returns their
  // sum: the probability of a token is its weight over that.
  //   weights  [vocab_size, up to whole chunks (row_block.h)]  f32  out
  double WriteWeights(float* weights) const;

  // Returns log(sum of exp((score - max) / temperature)) over the tokens left.
  double LogSum() const;

  // Calls visit(token, score) for the tokens left, in ascending order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    ForEachOf([](TokenId, const float*) { return ~uint64_t{0}; }, visit);
  }

  // As ForEach, but skips tokens that `select` excludes: select(first, scores)
  // has bit i unset for token first + i of a chunk (row_block.h) that starts at
  // `first`, a multiple of kChunkSize. Listed tokens are all visited.
  template <typename Select, typename Visit>
  void ForEachOf(const Select& select, const Visit& visit) const {
    if (!all_weighed_) {
      for (const Token& t : few_) visit(t.token, t.score);
      return;
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (int begin = 0; begin < blocks_[b].size; begin += kChunkSize) {
        const float* const scores = blocks_[b].values + begin;
        const TokenId first = first_tokens_[b] + begin;
        for (uint64_t mask = select(first, scores); mask != 0;
             mask &= mask - 1) {
          const int i = std::countr_zero(mask);
          if (rule_.KeyOf(scores[i]) >= cut_) visit(first + i, scores[i]);
        }
      }
    }
  }

 private:
  struct Token {
    TokenId token;
    float score;
    double weight;
  };

  bool has_top_k() const;
  // Returns exp((score - max) / temperature).
  double WeightOf(float score) const;
  // Returns the lowest score that min_p keeps.
  float LowOfMinP() const;

  // Lists the tokens left, if they can be found without weighing all tokens.
  bool CompactSurvivors();
  // Lists all tokens from `low` on and returns true; returns false if there are
  // more than `limit`.
  bool List(float low, size_t limit);
  void KeepTopK();
  // Filter a list that holds all tokens which these filters can keep. `total`
  // is the weight of all tokens that they act on.
  void KeepTopP(double total);
  void KeepTypical();
  double ListedWeight() const;

  // Moves the cut in the order of scores to that of top_k.
  void CutTopK();
  // Computes masses and moments of all blocks that have a token left.
  void WeighBlocks();
  WeightSums Weigh(const ProcessedLogits::Block& block) const;
  // Lists the tokens left if few of them have the mass of top_p.
  bool ListPeak();
  // Returns the mass of the highest score of each group.
  double MassOfGroups() const;
  void CutTopP();
  void CutTypical();
  // Drops tokens with a lower key, in the order of the rule.
  void TakeMasses(const Cut& cut);
  double TotalMass() const;
  void WriteBlockWeights(size_t b, float* weights) const;

  TokenId DrawListed(double uniform) const;
  TokenId DrawWeighed(double uniform) const;
  // Continues in block `b`; kNoToken if it ends before `sum` exceeds `target`.
  TokenId DrawWithin(size_t b, double target, double& sum) const;
  TokenId LastToken() const;

  // Constant.
  ProcessedLogits& row_;
  const SamplingParams params_;
  const WeightRule weight_rule_;

  bool all_weighed_ = false;
  std::vector<Token> few_;  // if not, ascending by token
  // If true: a token is left if its key is at least cut_.
  KeyRule rule_;
  float cut_ = -std::numeric_limits<float>::max();
  // Without weights: the block that a draw falls into is weighed on demand.
  std::vector<WeightedBlock> blocks_;  // masses of the tokens left
  std::vector<TokenId> first_tokens_;  // [blocks_]
  // For typical_p only: the sum of weight * (score - max) of all tokens with a
  // score from rule_.low on, in nats.
  double moment_ = 0;
};

}  // namespace espalier
