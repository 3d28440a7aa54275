#include "kernels/edited_row.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/sample.h"
#include "kernels/scratch.h"

namespace espalier {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

bool HasNan(const float* values, int size) {
  return std::any_of(values, values + size,
                     [](float x) { return std::isnan(x); });
}

}  // namespace

EditedRow::EditedRow(std::span<const float> logits, const Options& options)
    : logits_(logits) {
  const int num_blocks = (vocab_size() + kBlockSize - 1) / kBlockSize;
  blocks_.reserve(num_blocks);
  group_max_.resize(num_blocks * kBlockGroups);
  if (options.keep_terms) {
    terms_ = Scratch(ScratchUse::kTerms, num_blocks * kBlockSize);
  }
  if (options.only_edited || !options.edits.empty()) {
    edited_ = Scratch(ScratchUse::kEdited, num_blocks * kBlockSize);
  }
  std::span<const TokenEdit> edits = options.edits;
  for (int begin = 0; begin < vocab_size(); begin += kBlockSize) {
    const std::optional<Block> raw = Read(begin);
    has_nan_ = !raw.has_value();
    if (has_nan_) return;
    blocks_.push_back(Edit(*raw, begin, options, edits));
    max_ = std::max(max_, blocks_.back().max);
  }
}

std::optional<EditedRow::Block> EditedRow::Read(int begin) {
  const int count = std::min(kBlockSize, vocab_size() - begin);
  Block block = {.values = &logits_[begin],
                 .size = (count + kChunkSize - 1) / kChunkSize * kChunkSize};
  if (block.size != count) {
    tail_ = std::make_unique_for_overwrite<float[]>(kBlockSize);
    std::copy_n(block.values, count, tail_.get());
    std::fill(&tail_[count], &tail_[block.size], -kInf);
    block.values = tail_.get();
  }
  const BlockMax max = MaxOfBlock(block.values, block.size, NextGroups());
  if (max.maybe_nan && HasNan(block.values, block.size)) return std::nullopt;
  block.max = max.max;
  float* const terms = terms_ == nullptr ? nullptr : &terms_[begin];
  block.terms_sum = sum_.Add(block.values, block.size, block.max, terms);
  block.terms_max = sum_.max();
  if (std::isfinite(block.max) && sum_.max() < kInf) block.terms = terms;
  return block;
}

float* EditedRow::NextGroups() {
  return &group_max_[blocks_.size() * kBlockGroups];
}

EditedRow::Block EditedRow::Edit(const Block& raw, int begin,
                                 const Options& options,
                                 std::span<const TokenEdit>& edits) {
  const TokenId end = begin + raw.size;
  const bool has_edits = !edits.empty() && edits.front().token < end;
  if (!has_edits && !options.only_edited) return raw;
  float* const copy = &edited_[begin];
  if (options.only_edited) {
    std::fill_n(copy, raw.size, -kInf);
  } else {
    std::copy_n(raw.values, raw.size, copy);
  }
  for (; !edits.empty() && edits.front().token < end;
       edits = edits.subspan(1)) {
    const TokenEdit& edit = edits.front();
    const int i = edit.token - begin;
    copy[i] = edit.banned ? -kInf
                          : EditedScore(raw.values[i], edit,
                                        options.repetition_penalty);
  }
  const BlockMax max = MaxOfBlock(copy, raw.size, NextGroups());
  return {.values = copy, .size = raw.size, .max = max.max};
}

float EditedRow::LogProb(TokenId token) const {
  const float logit = logits_[token];
  const float difference = logit == sum_.max() ? 0.0f : logit - sum_.max();
  return difference - sum_.log_sum();
}

std::vector<float> EditedRow::LogProbs() const {
  const float max = sum_.max(), log_sum = sum_.log_sum();
  std::vector<float> log_probs;
  log_probs.reserve(logits_.size());
  for (const float logit : logits_) {
    log_probs.push_back((logit == max ? 0.0f : logit - max) - log_sum);
  }
  return log_probs;
}

TokenId EditedRow::BestToken() const {
  TokenId token = 0;
  for (const Block& block : blocks_) {
    if (block.max == max_) {
      const float* const best =
          std::find(block.values, block.values + block.size, max_);
      return token + static_cast<TokenId>(best - block.values);
    }
    token += block.size;
  }
  return kNoToken;
}

std::optional<float> EditedRow::LowBound(int count) const {
  // Groups are maxima of disjoint parts, so that as many tokens as groups have
  // a score or more. Beyond half the groups it would be a bad bound.
  if (count > std::ssize(group_max_) / 2) return std::nullopt;
  const auto num_from = [&](float bound) {
    return std::ranges::count_if(group_max_,
                                 [&](float max) { return max >= bound; });
  };
  // By bisection, as close as one eighth more.
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
