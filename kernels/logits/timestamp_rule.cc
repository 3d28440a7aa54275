#include "kernels/logits/timestamp_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/float_limits.h"
#include "kernels/logits/row_scan.h"
#include "kernels/logits/running_log_sum.h"

namespace espalier {
namespace {

// Calls visit(block) for all blocks of a part of a row.
template <typename Visit>
void ForEachBlock(std::span<const float> scores, const Visit& visit) {
  float copy[kRowBlockSize];
  for (int begin = 0; begin < std::ssize(scores); begin += kRowBlockSize) {
    visit(ReadRowBlock(scores, begin, copy));
  }
}

float MaxOf(std::span<const float> scores) {
  float max = -kInf;
  ForEachBlock(scores,
               [&](const RowBlock& block) { max = std::max(max, block.max); });
  return max;
}

// True if the sum of exp over `times` is above exp(bound).
bool OutweighsAll(std::span<const float> times, float bound) {
  RunningLogSum sum;
  ForEachBlock(times, [&](const RowBlock& block) {
    sum.Add(block.values, block.size, block.max);
  });
  if (sum.max() == -kInf) return false;
  return sum.max() + std::log(sum.sum()) > bound;
}

}  // namespace

TimestampState TimestampStateOf(const TimestampRule& rule,
                                std::span<const TokenId> generated) {
  TimestampState state;
  for (const TokenId token : generated) state = state.After(rule, token);
  return state;
}

void ApplyTimestampRule(const TimestampRule& rule, const TimestampState& state,
                        std::span<float> scores) {
  const auto tokens = TimestampTokens::In(state, rule);
  const TokenId size = static_cast<TokenId>(scores.size());
  const auto ban = [&](TokenId begin, TokenId end) {
    end = std::min(end, size);
    if (begin < end) std::fill(&scores[begin], scores.data() + end, -kInf);
  };
  ban(0, tokens.first_other);
  ban(rule.no_timestamps, rule.no_timestamps + 1);
  if (tokens.last_time < rule.first_time) return ban(rule.first_time, size);
  ban(rule.first_time, tokens.first_time);
  if (tokens.last_time < size) ban(tokens.last_time + 1, size);
  if (tokens.first_other == rule.first_time) return;
  const float bound = MaxOf(scores.first(rule.first_time));
  if (OutweighsAll(scores.subspan(rule.first_time), bound)) {
    ban(0, rule.first_time);
  }
}

}  // namespace espalier
