// ProcessedLogits: a row of logits for sampling, in blocks that are not copied
// unless an edit changes them. One pass computes the log-sum-exp of the raw
// row, the maximum of the edited one, and the maxima of its parts, which give a
// lower bound of the k-th highest score.
//
// Thread safety: one thread; only one object of a thread has copies at a time
// (scratch.h). Points into the logits.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/logits/row_block.h"
#include "kernels/logits/running_log_sum.h"
#include "kernels/logits/score_processors.h"

namespace espalier {

class ProcessedLogits {
 public:
  // The first token of block i is i * kBlockSize.
  static constexpr int kBlockSize = 1024;

  struct Block {
    const float* raw = nullptr;     // before edits
    const float* values = nullptr;  // after edits, once they were copied
    int size = 0;                   // whole chunks; -inf beyond the vocabulary
    float max = 0;                  // after edits
    std::span<const TokenEdit> edits = {};
    // Before edits: the sum of exp(logit - sum_max) and, if moments are kept,
    // that of exp(logit - sum_max) * (logit - sum_max).
    float sum_max = 0;
    ExpMoments sums = {};
  };

  // Edits are as in RowOptions (select.h).
  struct Options {
    float repetition_penalty = 1.0f;
    std::span<const TokenEdit> edits = {};
    bool is_allow_list = false;
    bool keep_moments = false;
  };

  // Reads the row, up to the first NaN.
  ProcessedLogits(std::span<const float> logits, const Options& options);

  // If true, no other member function may be called.
  bool has_nan() const { return has_nan_; }

  int vocab_size() const { return static_cast<int>(logits_.size()); }
  bool keeps_moments() const { return options_.keep_moments; }
  std::span<const Block> blocks() const { return blocks_; }
  // Copies all blocks that edits change.
  void CopyEdited();

  // Calls visit(token, score) for all tokens with an edited score of at least
  // `low`, in ascending order, while it returns true.
  // REQUIRES: low > -inf.
  template <typename Visit>
  void ForEachFrom(float low, const Visit& visit) const;

  // Returns the highest edited score; -inf if no token is possible.
  float max() const { return max_; }

  // Returns the edited score of a token.
  float ScoreOf(TokenId token) const;

  // Returns the token's log-probability in the raw row, nats: the bits of
  // SelectRow.
  float LogProb(TokenId token) const;

  // Writes the raw log-probability of every token.
  // REQUIRES: a token above -inf.
  //   log_probs  [vocab_size]  out
  void WriteLogProbs(float* log_probs) const;
  // Returns the lowest of the tokens with the highest edited score.
  // REQUIRES: max() > -inf.
  TokenId BestToken() const;

  // Returns the maxima of disjoint parts of the row, after edits; -inf pads
  // them to whole chunks.
  std::span<const float> group_max() const { return group_max_; }

  // Returns a score that at least `count` tokens reach, close to the highest
  // such score; nullopt if `count` is not small against the row.
  std::optional<float> LowBound(int count) const;

 private:
  // Returns the raw block that starts at `begin`; nullopt if it has a NaN.
  std::optional<Block> Read(int begin);
  // Applies edits to the block that starts at `begin`, and removes them from
  // the front of `edits`.
  void Edit(int begin, std::span<const TokenEdit>& edits, Block& block);
  // Writes the edited scores of a block to `copy`.
  void WriteEdited(const Block& block, int begin, float* copy) const;
  float ScoreOf(const TokenEdit& edit) const;
  float* NextGroups();  // next block's groups
  std::span<const float> logits_;
  const Options options_;
  bool has_nan_ = false;
  float max_ = -std::numeric_limits<float>::infinity();
  RunningLogSum sum_;
  std::vector<Block> blocks_;
  std::vector<float> group_max_;   // [blocks, kBlockGroups], and padding
  std::unique_ptr<float[]> tail_;  // [kBlockSize], a partial last block
};

template <typename Visit>
void ProcessedLogits::ForEachFrom(float low, const Visit& visit) const {
  const float below =
      std::nextafter(low, -std::numeric_limits<float>::infinity());
  TokenId begin = 0;
  for (const Block& block : blocks_) {
    size_t next = 0;  // edit
    // Visits edited tokens before `end`; returns false once visit has returned
    // false.
    const auto visit_edits = [&](TokenId end) {
      for (; next < block.edits.size() && block.edits[next].token < end;
           ++next) {
        const float score = ScoreOf(block.edits[next]);
        if (score >= low && !visit(block.edits[next].token, score)) {
          return false;
        }
      }
      return true;
    };
    const bool has_others = block.max >= low && !options_.is_allow_list;
    for (int chunk = 0; has_others && chunk < block.size; chunk += kChunkSize) {
      ChunkMask found = FirstAbove(block.raw, chunk, block.size, below);
      chunk = found.begin;
      for (; found.mask != 0; found.mask &= found.mask - 1) {
        const int i = chunk + std::countr_zero(found.mask);
        if (!visit_edits(begin + i)) return;
        const bool edited =
            next < block.edits.size() && block.edits[next].token == begin + i;
        if (!edited && !visit(begin + i, block.raw[i])) return;
      }
    }
    if (block.max >= low && !visit_edits(begin + block.size)) return;
    begin += block.size;
  }
}

}  // namespace espalier
