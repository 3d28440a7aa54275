#include "kernels/sample/kept_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "kernels/float_limits.h"
#include "kernels/logits/score_key.h"
#include "kernels/sample/sample_filters.h"
#include "kernels/scratch.h"

namespace espalier {
namespace {

// Number of best tokens that are tried as the whole nucleus.
constexpr int kPeakSize = 64;
// The best tokens of each group have this share of the bound in a peaked
// nucleus.
constexpr double kPeakShare = 0.9;
// Ties can make a list longer than requested. Beyond this length, weighing all
// tokens is faster.
constexpr size_t kMaxPeakSize = 4 * kPeakSize;
// Cost of a token in a list in double, relative to one in a block.
constexpr int kListCost = 32;

// Returns the lowest float in (low, high] that is kept. `keeps` is monotonic.
// REQUIRES: !keeps(low), keeps(high).
template <typename Keeps>
float LowestKept(float low, float high, const Keeps& keeps) {
  uint32_t out = OrdinalOf(low), in = OrdinalOf(high);
  while (in - out > 1) {
    const uint32_t middle = out + (in - out) / 2;
    (keeps(ScoreAt(middle)) ? in : out) = middle;
  }
  return ScoreAt(in);
}

// Drops tokens that rank after tokens that have `bound` together. Lower ranks
// stay first; equal ranks stay or go together.
template <typename Token, typename Rank>
void KeepFirst(double bound, const Rank& rank_of, std::vector<Token>& tokens) {
  std::vector<std::pair<double, double>> ranked;  // rank, weight
  ranked.reserve(tokens.size());
  for (const Token& t : tokens) ranked.push_back({rank_of(t), t.weight});
  std::sort(ranked.begin(), ranked.end());
  double cut = ranked.front().first, before = 0;
  for (const auto& [rank, weight] : ranked) {
    if (rank != cut && before >= bound) break;
    cut = rank;
    before += weight;
  }
  std::erase_if(tokens, [&](const Token& t) { return rank_of(t) > cut; });
}

}  // namespace

bool KeptTokens::AsksMoments(const SamplingParams& params, int vocab_size) {
  return !params.greedy() && !HasTopK(params, vocab_size) &&
         params.typical_p < 1.0f && params.temperature == 1.0f;
}

KeptTokens::KeptTokens(ProcessedLogits& row, const SamplingParams& params)
    : row_(row),
      params_(params),
      weight_rule_{.max = row.max(), .temperature = params.temperature} {
  if (params_.min_p > 0 && row_.max() < kInf) rule_.low = LowOfMinP();
  if (CompactSurvivors()) {
    KeepTopK();
    KeepTopP(ListedWeight());
    KeepTypical();
    return;
  }
  row_.CopyEdited();
  if (has_top_k()) CutTopK();
  WeighBlocks();
  if (ListPeak()) {
    KeepTopP(TotalMass());
    KeepTypical();
    return;
  }
  all_weighed_ = true;
  CutTopP();
  CutTypical();
}

bool KeptTokens::has_top_k() const {
  return HasTopK(params_, row_.vocab_size());
}

double KeptTokens::WeightOf(float score) const {
  if (score == row_.max()) return 1.0;
  const double max = row_.max();
  return std::exp((score - max) / params_.temperature);
}

float KeptTokens::LowOfMinP() const {
  const auto keeps = [&](float score) {
    return WeightOf(score) >= params_.min_p;
  };
  if (keeps(kLowest)) return kLowest;
  const double guess =
      row_.max() + params_.temperature * std::log(double{params_.min_p});
  // Usually it is one of these four.
  const uint32_t near = OrdinalOf(static_cast<float>(guess));
  if (guess > 0.5f * kLowest && !keeps(ScoreAt(near - 2)) &&
      keeps(ScoreAt(near + 2))) {
    return LowestKept(ScoreAt(near - 2), ScoreAt(near + 2), keeps);
  }
  return LowestKept(kLowest, row_.max(), keeps);
}

bool KeptTokens::CompactSurvivors() {
  constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  if (row_.max() == kInf) return List(kInf, kNoLimit);
  if (has_top_k()) {
    const std::optional<float> bound = row_.LowBound(params_.top_k);
    return bound.has_value() && List(std::max(*bound, rule_.low), kNoLimit);
  }
  return params_.min_p > 0 && List(rule_.low, row_.vocab_size() / kListCost);
}

bool KeptTokens::List(float low, size_t limit) {
  row_.ForEachFrom(low, [&](TokenId token, float score) {
    few_.push_back({token, score, WeightOf(score)});
    return few_.size() <= limit;
  });
  if (few_.size() <= limit) return true;
  few_.clear();
  return false;
}

void KeptTokens::KeepTopK() {
  if (!has_top_k() || std::ssize(few_) <= params_.top_k) return;
  std::vector<float> scores;
  scores.reserve(few_.size());
  for (const Token& t : few_) scores.push_back(t.score);
  const auto kth = scores.begin() + params_.top_k - 1;
  std::nth_element(scores.begin(), kth, scores.end(), std::greater<>());
  std::erase_if(few_, [&](const Token& t) { return t.score < *kth; });
}

void KeptTokens::KeepTopP(double total) {
  if (params_.top_p == 1.0f) return;
  KeepFirst(
      params_.top_p * total, [](const Token& t) { return -double{t.score}; },
      few_);
}

void KeptTokens::KeepTypical() {
  if (params_.typical_p == 1.0f) return;
  const double total = ListedWeight();
  const double log_total = std::log(total);
  const auto surprise = [&](const Token& t) {
    return t.weight > 0 ? log_total - std::log(t.weight) : HUGE_VAL;
  };
  double entropy = 0;
  for (const Token& t : few_) {
    if (t.weight > 0) entropy += t.weight / total * surprise(t);
  }
  KeepFirst(
      params_.typical_p * total,
      [&](const Token& t) { return std::abs(surprise(t) - entropy); }, few_);
}

double KeptTokens::ListedWeight() const {
  double total = 0;
  for (const Token& t : few_) total += t.weight;
  return total;
}

void KeptTokens::CutTopK() {
  static constexpr auto kOnes = [] {
    std::array<float, ProcessedLogits::kBlockSize> ones{};
    ones.fill(1.0f);
    return ones;
  }();
  std::vector<WeightedBlock> blocks;
  for (const ProcessedLogits::Block& block : row_.blocks()) {
    blocks.push_back(
        {.values = block.values, .weights = kOnes.data(), .size = block.size});
  }
  const Cut cut = FindThreshold(blocks, rule_, weight_rule_, params_.top_k,
                                row_.vocab_size());
  rule_.low = std::max(rule_.low, cut.key);
}

void KeptTokens::WeighBlocks() {
  TokenId first_token = 0;
  for (const ProcessedLogits::Block& block : row_.blocks()) {
    if (block.max >= rule_.low) {
      const WeightSums sums = Weigh(block);
      first_tokens_.push_back(first_token);
      blocks_.push_back({.values = block.values,
                         .size = block.size,
                         .mass = sums.mass,
                         .max = block.max});
      moment_ += sums.moment;
    }
    first_token += block.size;
  }
}

WeightSums KeptTokens::Weigh(const ProcessedLogits::Block& block) const {
  // Sums that are small because of a banned token have lost precision, or all
  // value, to underflow.
  constexpr float kMaxShift = 20;
  const float shift = block.sum_max - row_.max();
  const bool has_moments = params_.typical_p == 1.0f || row_.keeps_moments();
  const bool has_sums = params_.temperature == 1.0f && rule_.low == kLowest &&
                        block.values == block.raw && block.max > -kInf &&
                        shift < kMaxShift && has_moments;
  if (!has_sums) {
    return SumsOfBlock(block.values, block.size, weight_rule_, rule_.low,
                       params_.typical_p < 1.0f);
  }
  const double scale = std::exp(double{block.sum_max} - row_.max());
  return {.mass = scale * block.sums.sum,
          .moment = scale * (block.sums.moment + shift * block.sums.sum)};
}

double KeptTokens::MassOfGroups() const {
  const std::span<const float> maxima = row_.group_max();
  return SumsOfBlock(maxima.data(), static_cast<int>(maxima.size()),
                     weight_rule_, kLowest, /*with_moment=*/false)
      .mass;
}

bool KeptTokens::ListPeak() {
  const double bound = params_.top_p * TotalMass();
  // No weight is above 1. In a peaked nucleus few tokens share a group.
  if (params_.top_p == 1.0f || bound > kPeakSize) return false;
  if (MassOfGroups() < kPeakShare * bound) return false;
  const std::optional<float> low = row_.LowBound(kPeakSize);
  if (!low.has_value() || !List(std::max(*low, rule_.low), kMaxPeakSize)) {
    return false;
  }
  if (ListedWeight() >= bound) return true;
  few_.clear();
  return false;
}

void KeptTokens::CutTopP() {
  if (params_.top_p == 1.0f) return;
  const double total = TotalMass();
  const Cut cut =
      FindThreshold(blocks_, rule_, weight_rule_, params_.top_p * total, total,
                    params_.typical_p < 1.0f ? &moment_ : nullptr);
  rule_.low = std::max(rule_.low, cut.key);
  TakeMasses(cut);
}

void KeptTokens::CutTypical() {
  if (params_.typical_p == 1.0f) return;
  // The key |-log p - entropy| is the distance from the mean of the scores,
  // divided by the temperature.
  const double total = TotalMass();
  rule_.by_distance = true;
  rule_.origin = row_.max();
  rule_.center = static_cast<float>(moment_ / total);
  const Cut cut = FindThreshold(blocks_, rule_, weight_rule_,
                                params_.typical_p * total, total);
  cut_ = cut.key;
  TakeMasses(cut);
}

void KeptTokens::TakeMasses(const Cut& cut) {
  for (size_t b = 0; b < blocks_.size(); ++b) blocks_[b].mass = cut.masses[b];
}

double KeptTokens::TotalMass() const {
  double total = 0;
  for (const WeightedBlock& block : blocks_) total += block.mass;
  return total;
}

double KeptTokens::LogSum() const {
  return std::log(all_weighed_ ? TotalMass() : ListedWeight());
}

double KeptTokens::Probability(TokenId token) const {
  if (!all_weighed_) {
    const auto at = std::ranges::lower_bound(few_, token, {}, &Token::token);
    const bool is_left = at != few_.end() && at->token == token;
    return is_left ? at->weight / ListedWeight() : 0;
  }
  const float score = row_.ScoreOf(token);
  return rule_.KeyOf(score) >= cut_ ? WeightOf(score) / TotalMass() : 0;
}

double KeptTokens::WriteWeights(float* weights) const {
  const int num_chunks = (row_.vocab_size() + kChunkSize - 1) / kChunkSize;
  std::fill_n(weights, num_chunks * kChunkSize, 0.0f);
  if (!all_weighed_) {
    for (const Token& t : few_) {
      weights[t.token] = static_cast<float>(t.weight);
    }
    return ListedWeight();
  }
  for (size_t b = 0; b < blocks_.size(); ++b) {
    WriteBlockWeights(b, weights + first_tokens_[b]);
  }
  return TotalMass();
}

void KeptTokens::WriteBlockWeights(size_t b, float* weights) const {
  const WeightedBlock& block = blocks_[b];
  WeighBlock(block.values, block.size, weight_rule_, weights);
  if (rule_.by_distance) {
    for (int i = 0; i < block.size; ++i) {
      if (rule_.KeyOf(block.values[i]) < cut_) weights[i] = 0;
    }
    return;
  }
  // As above, in a form that the compiler vectorises.
  const float low = std::max(rule_.low, cut_);
  for (int i = 0; i < block.size; ++i) {
    weights[i] = block.values[i] < low ? 0 : weights[i];
  }
}

TokenId KeptTokens::Draw(double uniform) const {
  return all_weighed_ ? DrawWeighed(uniform) : DrawListed(uniform);
}

TokenId KeptTokens::DrawListed(double uniform) const {
  const double target = uniform * ListedWeight();
  TokenId token = kNoToken;
  double sum = 0;
  for (const Token& t : few_) {
    if (t.weight == 0) continue;
    token = t.token;
    sum += t.weight;
    if (sum > target) break;
  }
  return token;
}

TokenId KeptTokens::DrawWeighed(double uniform) const {
  const double target = uniform * TotalMass();
  double sum = 0;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (sum + blocks_[b].mass <= target) {
      sum += blocks_[b].mass;
      continue;
    }
    const TokenId token = DrawWithin(b, target, sum);
    if (token != kNoToken) return token;
  }
  return LastToken();
}

TokenId KeptTokens::DrawWithin(size_t b, double target, double& sum) const {
  const WeightedBlock& block = blocks_[b];
  float* const weights =
      Scratch(ScratchUse::kBlock, ProcessedLogits::kBlockSize);
  WeighBlock(block.values, block.size, weight_rule_, weights);
  for (int begin = 0; begin < block.size; begin += kChunkSize) {
    const double mass = MassOfBlock(block.values + begin, weights + begin,
                                    kChunkSize, rule_, cut_);
    if (sum + mass <= target) {
      sum += mass;
      continue;
    }
    for (int i = begin; i < begin + kChunkSize; ++i) {
      if (rule_.KeyOf(block.values[i]) < cut_) continue;
      sum += weights[i];
      if (sum > target) return first_tokens_[b] + i;
    }
  }
  return kNoToken;
}

TokenId KeptTokens::LastToken() const {
  TokenId last = kNoToken;
  ForEach([&](TokenId token, float score) {
    if (WeightOf(score) > 0) last = token;
  });
  return last;
}

}  // namespace espalier
