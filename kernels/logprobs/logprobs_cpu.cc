#include <algorithm>

#include "base/check.h"
#include "kernels/float_limits.h"
#include "kernels/logits/row_scan.h"
#include "kernels/logits/running_log_sum.h"
#include "kernels/logits/score_key.h"
#include "kernels/logprobs/logprobs.h"

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logprobs/logprobs_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Adds to `counts` the number of `values` above each threshold.
//   values      [size]
//   thresholds  [num_counts]
void CountAbove(const float* values, int size, const float* thresholds,
                int* counts, int num_counts) {
  const hn::CappedTag<float, 16> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const int end = size / lanes * lanes;
  for (int i = 0; i < num_counts; ++i) {
    const auto threshold = hn::Set(d, thresholds[i]);
    size_t count = 0;
    for (int j = 0; j < end; j += lanes) {
      count += hn::CountTrue(d, hn::Gt(hn::LoadU(d, values + j), threshold));
    }
    for (int j = end; j < size; ++j) count += values[j] > thresholds[i];
    counts[i] += static_cast<int>(count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {
namespace {

HWY_EXPORT(CountAbove);

// 16 KiB: a block stays in the first-level cache while all thresholds are
// compared with it.
constexpr int kBlockSize = 4096;

std::vector<int> CountsAbove(std::span<const float> logits,
                             const std::vector<float>& thresholds) {
  std::vector<int> counts(thresholds.size());
  for (size_t begin = 0; begin < logits.size(); begin += kBlockSize) {
    const auto block = logits.subspan(
        begin, std::min<size_t>(kBlockSize, logits.size() - begin));
    HWY_DYNAMIC_DISPATCH(CountAbove)
    (block.data(), static_cast<int>(block.size()), thresholds.data(),
     counts.data(), static_cast<int>(counts.size()));
  }
  return counts;
}

// The best tokens of a row, and log-probabilities and ranks that follow from
// them.
class BestOfRow {
 public:
  // REQUIRES: num_best >= 1.
  BestOfRow(std::span<const float> logits, int num_best) : logits_(logits) {
    BestTokens best(num_best, static_cast<int>(logits.size()));
    softmax_ =
        ScanRow(logits, best, [](const RowBlock& block, int) { return block; });
    std::vector<ScoreKey> keys = best.Take();
    KeepBestSorted(num_best, keys);
    for (const ScoreKey key : keys) {
      best_.push_back({TokenOf(key), LogProb(TokenOf(key))});
    }
    knows_all_ = std::ssize(best_) < num_best;
  }

  float Logit(TokenId token) const { return NanAsMinusInf(logits_[token]); }

  float LogProb(TokenId token) const {
    return softmax_.max > -kInf ? softmax_.LogProb(logits_[token]) : -kInf;
  }

  // True if all tokens of a higher logit are among the best.
  bool KnowsRank(float logit) const {
    return knows_all_ || logit >= Logit(best_.back().token);
  }
  int Rank(float logit) const {
    const auto is_higher = [&](const TokenScore& token) {
      return Logit(token.token) > logit;
    };
    return 1 + static_cast<int>(std::ranges::partition_point(best_, is_higher) -
                                best_.begin());
  }

  std::vector<TokenScore> Take(size_t num_best) {
    if (best_.size() > num_best) best_.resize(num_best);
    return std::move(best_);
  }

 private:
  std::span<const float> logits_;
  LogSoftmax softmax_;
  std::vector<TokenScore> best_;
  bool knows_all_;  // that are above -inf
};

RunningLogSum SumOf(std::span<const float> logits) {
  RunningLogSum sum;
  float clean[kRowBlockSize];
  for (int begin = 0; begin < std::ssize(logits); begin += kRowBlockSize) {
    const RowBlock block = ReadRowBlock(logits, begin, clean);
    sum.Add(block.values, block.size, block.max);
  }
  return sum;
}

}  // namespace

float LogMassOf(std::span<const float> logits,
                std::span<const TokenId> tokens) {
  std::vector<float> own;
  own.reserve(tokens.size());
  for (const TokenId token : tokens) own.push_back(logits[token]);
  const RunningLogSum some = SumOf(own);
  if (!(some.max() > -kInf)) return -kInf;
  const RunningLogSum all = SumOf(logits);
  const LogSoftmax softmax = {all.max(), all.log_sum()};
  return std::min(softmax.LogProb(some.max()) + some.log_sum(), 0.0f);
}

RowLogProbs LogProbsOfRow(std::span<const float> logits,
                          std::span<const TokenId> tokens, int num_best) {
  CHECK_GE(num_best, 0);
  const int vocab_size = static_cast<int>(logits.size());
  const int num_selected =
      std::max<int>({num_best, static_cast<int>(tokens.size()), 1});
  BestOfRow best(logits, std::min(num_selected, vocab_size));
  RowLogProbs result;
  std::vector<size_t> unranked;
  std::vector<float> thresholds;
  for (const TokenId token : tokens) {
    CHECK(token >= 0 && token < vocab_size) << "token " << token;
    const float logit = best.Logit(token);
    const bool is_ranked = best.KnowsRank(logit);
    if (!is_ranked) {
      unranked.push_back(result.tokens.size());
      thresholds.push_back(logit);
    }
    result.tokens.push_back(
        {best.LogProb(token), is_ranked ? best.Rank(logit) : 1});
  }
  if (!unranked.empty()) {
    const std::vector<int> counts = CountsAbove(logits, thresholds);
    for (size_t i = 0; i < unranked.size(); ++i) {
      result.tokens[unranked[i]].rank += counts[i];
    }
  }
  result.best = best.Take(num_best);
  return result;
}

}  // namespace espalier
#endif  // HWY_ONCE
