// The rule of timestamps, written as openai's ApplyTimestampRules is, from all
// tokens of a text: the oracle of timestamp_rule.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/logits/timestamp_rule.h"

namespace espalier::testing {

// The distance of the two sides of part f: above 0 if times outweigh the
// others, infinite if it does not matter.
struct MaskedByRule {
  std::vector<double> logits;
  double margin = std::numeric_limits<double>::infinity();
};

//   seq  the generated tokens
inline MaskedByRule MaskByRule(std::vector<double> logits,
                               std::span<const TokenId> seq,
                               const TimestampRule& rule) {
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  const TokenId time_begin = rule.first_time;
  const TokenId size = static_cast<TokenId>(logits.size());
  const auto ban = [&](TokenId begin, TokenId end) {
    for (TokenId t = begin; t < std::min(end, size); ++t) logits[t] = kOut;
  };
  const auto is_time = [&](size_t from_end) {
    return seq[seq.size() - from_end] >= time_begin;
  };
  ban(rule.no_timestamps, rule.no_timestamps + 1);
  const bool last_is_time = !seq.empty() && is_time(1);
  const bool penultimate_is_time = seq.size() < 2 || is_time(2);
  if (last_is_time) {
    if (penultimate_is_time) {
      ban(time_begin, size);
    } else {
      ban(0, rule.end);
    }
  }
  std::vector<TokenId> times;
  std::ranges::copy_if(seq, std::back_inserter(times),
                       [&](TokenId token) { return token >= time_begin; });
  if (!times.empty()) {
    const bool may_repeat = last_is_time && !penultimate_is_time;
    ban(time_begin, may_repeat ? times.back() : times.back() + 1);
  }
  if (seq.empty() && rule.after_prefix == 0) {
    ban(0, time_begin);
    for (TokenId t = size - 1; t > rule.last_first_time; --t) logits[t] = kOut;
  }
  double max_text = kOut, max_time = kOut, sum = 0;
  for (TokenId t = 0; t < size; ++t) {
    double& max = t < time_begin ? max_text : max_time;
    if (!std::isnan(logits[t])) max = std::max(max, logits[t]);
  }
  MaskedByRule masked;
  if (max_time > kOut) {
    for (TokenId t = time_begin; t < size; ++t) {
      if (!std::isnan(logits[t])) sum += std::exp(logits[t] - max_time);
    }
    const double mass = max_time + std::log(sum);
    if (max_text > kOut) masked.margin = mass - max_text;
    if (mass > max_text) ban(0, time_begin);
  }
  masked.logits = std::move(logits);
  return masked;
}

}  // namespace espalier::testing
