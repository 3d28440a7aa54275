#include <algorithm>
#include <cmath>

#include "kernels/sample.h"
#include "kernels/select.h"

namespace espalier {
namespace {

Draw DrawGreedy(std::span<const float> logits, const DrawOptions& options) {
  const RowOptions best = {.domain = ScoreDomain::kLogits,
                           .num_candidates = 1,
                           .repetition_penalty = options.repetition_penalty,
                           .edits = options.edits,
                           .only_edited = options.only_edited};
  const std::vector<TokenScore> chosen = SelectRow(logits, best);
  if (chosen.empty()) return {};
  return {.token = chosen[0].token, .log_prob = chosen[0].log_prob};
}

}  // namespace

Draw DrawRow(std::span<const float> logits, const DrawOptions& options) {
  if (!options.params.greedy()) return reference::DrawRow(logits, options);
  const bool has_nan = std::any_of(logits.begin(), logits.end(),
                                   [](float x) { return std::isnan(x); });
  if (has_nan) return {.token = kNotANumber};
  return DrawGreedy(logits, options);
}

}  // namespace espalier
