// KeptTokens: what the filters of sampling (sample.h) leave of a row, and in
// which proportions.
//
// Where filters can leave only few tokens, because of top_k or min_p or because
// so few have the mass that top_p asks for, these are listed and all is done
// with the list, in double. Otherwise every token gets a weight, in float32,
// and each filter moves a cut in the order of scores, or of distances
// (mass_search.h). Nothing is ever sorted but a few tokens.
//
// Thread rule: one thread, which makes one of them at a time (scratch.h).
// Points into the row.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/edited_row.h"
#include "kernels/mass_search.h"
#include "kernels/sample.h"

namespace espalier {

class KeptTokens {
 public:
  // Whether filters look at weights of all tokens, so that the row should keep
  // its terms.
  static bool WeighsAll(const SamplingParams& params, int vocab_size);

  // REQUIRES: row.max() > -inf; params not greedy.
  KeptTokens(EditedRow& row, const SamplingParams& params);

  // The token where the cumulative distribution over ascending tokens exceeds
  // `uniform`.
  TokenId Draw(double uniform) const;

  // log(sum of exp((score - max) / temperature)) of what is left.
  double LogSum() const;

  // Calls visit(token, score) for what is left, tokens ascending.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    if (!all_weighed_) {
      for (const Token& t : few_) visit(t.token, t.score);
      return;
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (int i = 0; i < blocks_[b].size; ++i) {
        const float score = blocks_[b].values[i];
        if (rule_.KeyOf(score) >= cut_) visit(first_tokens_[b] + i, score);
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
  // Whether a cut in the order of tokens is, or will be, anywhere.
  bool has_cut() const;
  // exp((score - max) / temperature).
  double WeightOf(float score) const;
  // The lowest score that min_p leaves.
  float LowOfMinP() const;

  // Lists what is left where that can be found without weighing all tokens.
  bool ListFew();
  // Lists all tokens from `low` on and returns true, or gives up if there are
  // more than `limit`.
  bool List(float low, size_t limit);
  void KeepTopK();
  // Of a list that holds all tokens that these filters can leave; `total` is
  // the weight of all tokens they act on.
  void KeepTopP(double total);
  void KeepTypical();
  double ListedWeight() const;

  // Moves the cut in the order of scores to where top_k has it.
  void CutTopK();
  // Weights of all blocks that have a token that is left.
  void WeighBlocks();
  void Weigh(const EditedRow::Block& block, float* weights);
  // Where few tokens have all the mass that top_p asks for, lists them.
  bool ListPeak();
  void CutTopP();
  void CutTypical();
  void UpdateMasses();
  double TotalMass() const;

  TokenId DrawListed(double uniform) const;
  TokenId DrawWeighed(double uniform) const;
  // Goes on in block `b`; kNoToken if it ends before `sum` exceeds `target`.
  TokenId DrawWithin(size_t b, double target, double& sum) const;
  TokenId LastToken() const;

  // Constant.
  EditedRow& row_;
  const SamplingParams params_;

  bool all_weighed_ = false;
  std::vector<Token> few_;  // if not, ascending by token
  // If so: a token is left if its key is at least cut_.
  KeyRule rule_;
  float cut_ = -std::numeric_limits<float>::max();
  // Weights are null where only sums were kept: the one block that a draw falls
  // into is weighed then.
  std::vector<WeightedBlock> blocks_;
  std::vector<TokenId> first_tokens_;  // [blocks_]
  std::vector<double> masses_;         // [blocks_], of what is left
};

}  // namespace espalier
