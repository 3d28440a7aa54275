#include "kernels/sample/processed_logits.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/float_limits.h"
#include "kernels/sample/sample.h"
#include "kernels/scratch.h"

namespace espalier {
namespace {

bool HasNan(const float* values, int size) {
  return std::any_of(values, values + size,
                     [](float x) { return std::isnan(x); });
}

}  // namespace

ProcessedLogits::ProcessedLogits(std::span<const float> logits,
                                 const Options& options)
    : logits_(logits), options_(options) {
  const int num_blocks = (vocab_size() + kBlockSize - 1) / kBlockSize;
  blocks_.reserve(num_blocks);
  const int num_groups = num_blocks * kBlockGroups;
  group_max_.resize((num_groups + kChunkSize - 1) / kChunkSize * kChunkSize,
                    -kInf);
  std::span<const TokenEdit> edits = options.edits;
  for (int begin = 0; begin < vocab_size(); begin += kBlockSize) {
    std::optional<Block> block = Read(begin);
    has_nan_ = !block.has_value();
    if (has_nan_) return;
    Edit(begin, edits, *block);
    blocks_.push_back(*block);
    max_ = std::max(max_, blocks_.back().max);
  }
}

std::optional<ProcessedLogits::Block> ProcessedLogits::Read(int begin) {
  const int count = std::min(kBlockSize, vocab_size() - begin);
  Block block = {.raw = &logits_[begin],
                 .size = (count + kChunkSize - 1) / kChunkSize * kChunkSize};
  if (block.size != count) {
    tail_ = std::make_unique_for_overwrite<float[]>(kBlockSize);
    std::copy_n(block.raw, count, tail_.get());
    std::fill(&tail_[count], &tail_[block.size], -kInf);
    block.raw = tail_.get();
  }
  const BlockMax max = MaxOfBlock(block.raw, block.size, NextGroups());
  if (max.maybe_nan && HasNan(block.raw, block.size)) return std::nullopt;
  block.max = max.max;
  block.sums =
      sum_.Add(block.raw, block.size, block.max, options_.keep_moments);
  block.sum_max = sum_.max();
  return block;
}

float* ProcessedLogits::NextGroups() {
  return &group_max_[blocks_.size() * kBlockGroups];
}

void ProcessedLogits::Edit(int begin, std::span<const TokenEdit>& edits,
                           Block& block) {
  const TokenId end = begin + block.size;
  size_t count = 0;
  while (count < edits.size() && edits[count].token < end) ++count;
  block.edits = edits.first(count);
  edits = edits.subspan(count);
  if (count == 0 && !options_.is_allow_list) {
    block.values = block.raw;
    return;
  }
  // Copied for its maxima only, to memory that the next block reuses: writing a
  // whole row costs more than editing a block again.
  float* const copy = Scratch(ScratchUse::kBlock, kBlockSize);
  WriteEdited(block, begin, copy);
  block.max = MaxOfBlock(copy, block.size, NextGroups()).max;
}

void ProcessedLogits::WriteEdited(const Block& block, int begin,
                                  float* copy) const {
  if (options_.is_allow_list) {
    std::fill_n(copy, block.size, -kInf);
  } else {
    std::copy_n(block.raw, block.size, copy);
  }
  for (const TokenEdit& edit : block.edits) {
    copy[edit.token - begin] = ScoreOf(edit);
  }
}

float ProcessedLogits::ScoreOf(const TokenEdit& edit) const {
  return edit.banned ? -kInf
                     : EditedScore(logits_[edit.token], edit,
                                   options_.repetition_penalty);
}

float ProcessedLogits::ScoreOf(TokenId token) const {
  const auto edit =
      std::ranges::lower_bound(options_.edits, token, {}, &TokenEdit::token);
  if (edit != options_.edits.end() && edit->token == token) {
    return ScoreOf(*edit);
  }
  return options_.is_allow_list ? -kInf : logits_[token];
}

void ProcessedLogits::CopyEdited() {
  float* const copies =
      Scratch(ScratchUse::kEdited, blocks_.size() * kBlockSize);
  int begin = 0;
  for (Block& block : blocks_) {
    if (block.values == nullptr) {
      WriteEdited(block, begin, copies + begin);
      block.values = copies + begin;
    }
    begin += block.size;
  }
}

float ProcessedLogits::LogProb(TokenId token) const {
  const float logit = logits_[token];
  const float difference = logit == sum_.max() ? 0.0f : logit - sum_.max();
  return difference - sum_.log_sum();
}

void ProcessedLogits::WriteLogProbs(float* log_probs) const {
  const float max = sum_.max(), log_sum = sum_.log_sum();
  std::ranges::transform(logits_, log_probs, [&](float logit) {
    return (logit == max ? 0.0f : logit - max) - log_sum;
  });
}

TokenId ProcessedLogits::BestToken() const {
  TokenId best = kNoToken;
  ForEachFrom(max_, [&](TokenId token, float) {
    best = token;
    return false;
  });
  return best;
}

std::optional<float> ProcessedLogits::LowBound(int count) const {
  // Groups are maxima of disjoint parts, so that as many tokens as groups reach
  // a score. Beyond half the groups the bound would be poor.
  if (count > std::ssize(group_max_) / 2) return std::nullopt;
  const auto num_from = [&](float bound) {
    return std::ranges::count_if(group_max_,
                                 [&](float max) { return max >= bound; });
  };
  // Bisects until the bound admits at most one eighth more.
  float low = -kInf, high = max_, step = 1;
  for (int i = 0; i < 64; ++i) {
    const float middle = low == -kInf ? max_ - step : low + 0.5f * (high - low);
    const int64_t num = num_from(middle);
    (num >= count ? low : high) = middle;
    if (num >= count && num <= count + count / 8) break;
    step *= 2;
  }
  return low > -kInf ? std::optional(low) : std::nullopt;
}

}  // namespace espalier
