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

double UniformOf(const DrawOptions& options, int sample,
                 RandomPurpose purpose) {
  const RandomKey key = {.seed = options.params.seed,
                         .sample = static_cast<uint32_t>(sample),
                         .position = options.position,
                         .purpose = purpose};
  return Uniform(key, 0);
}

std::vector<Draw> Choose(ProcessedLogits& row, const DrawOptions& options,
                         std::span<const int> samples, RandomPurpose purpose) {
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
    return draw_of(kept.Draw(UniformOf(options, sample, purpose)));
  });
  return draws;
}

std::vector<Draw> DrawFromRow(std::span<const float> logits,
                              const DrawOptions& options,
                              std::span<const int> samples,
                              RandomPurpose purpose) {
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
  return Choose(row, options, samples, purpose);
}

}  // namespace

Draw DrawRow(std::span<const float> logits, const DrawOptions& options,
             RandomPurpose purpose) {
  const int sample = static_cast<int>(options.sample);
  return DrawFromRow(logits, options, {&sample, 1}, purpose).front();
}

std::vector<Draw> DrawSamples(std::span<const float> logits,
                              const DrawOptions& options,
                              std::span<const int> samples) {
  return DrawFromRow(logits, options, samples, RandomPurpose::kDraw);
}

}  // namespace espalier
