#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/sample/kept_tokens.h"
#include "kernels/sample/processed_logits.h"
#include "kernels/sample/random.h"
#include "kernels/sample/sample.h"

namespace espalier {
namespace {

double UniformOf(const DrawOptions& options, int sample) {
  const RandomKey key = {.seed = options.params.seed,
                         .sample = static_cast<uint32_t>(sample),
                         .position = options.position,
                         .purpose = RandomPurpose::kDraw};
  return Uniform(key, 0);
}

std::vector<Draw> Choose(ProcessedLogits& row, const DrawOptions& options,
                         std::span<const int> samples) {
  std::vector<Draw> draws(samples.size());
  const auto draw_of = [&](TokenId token) -> Draw {
    return {.token = token, .log_prob = row.LogProb(token)};
  };
  if (options.params.greedy()) {
    std::ranges::fill(draws, draw_of(row.BestToken()));
    return draws;
  }
  const KeptTokens kept(row, options.params);
  std::ranges::transform(samples, draws.begin(), [&](int sample) {
    return draw_of(kept.Draw(UniformOf(options, sample)));
  });
  return draws;
}

}  // namespace

Draw DrawRow(std::span<const float> logits, const DrawOptions& options) {
  const int sample = static_cast<int>(options.sample);
  return DrawSamples(logits, options, {&sample, 1}).front();
}

std::vector<Draw> DrawSamples(std::span<const float> logits,
                              const DrawOptions& options,
                              std::span<const int> samples) {
  CHECK(!logits.empty());
  const int vocab_size = static_cast<int>(logits.size());
  ProcessedLogits row(logits, {.repetition_penalty = options.repetition_penalty,
                               .edits = options.edits,
                               .is_allow_list = options.is_allow_list,
                               .keep_moments = KeptTokens::AsksMoments(
                                   options.params, vocab_size)});
  if (row.has_nan()) {
    return std::vector<Draw>(samples.size(), {.token = kNotANumber});
  }
  if (row.max() == -std::numeric_limits<float>::infinity()) {
    return std::vector<Draw>(samples.size());
  }
  return Choose(row, options, samples);
}

}  // namespace espalier
