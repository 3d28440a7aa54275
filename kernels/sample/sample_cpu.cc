#include <limits>

#include "base/check.h"
#include "kernels/sample/edited_row.h"
#include "kernels/sample/kept_tokens.h"
#include "kernels/sample/random.h"
#include "kernels/sample/sample.h"

namespace espalier {
namespace {

TokenId Choose(EditedRow& row, const DrawOptions& options) {
  if (options.params.greedy()) return row.BestToken();
  const RandomKey key = {.seed = options.params.seed,
                         .sample = options.sample,
                         .position = options.position,
                         .purpose = RandomPurpose::kDraw};
  return KeptTokens(row, options.params).Draw(Uniform(key, 0));
}

}  // namespace

Draw DrawRow(std::span<const float> logits, const DrawOptions& options) {
  CHECK(!logits.empty());
  const int vocab_size = static_cast<int>(logits.size());
  EditedRow row(logits, {.repetition_penalty = options.repetition_penalty,
                         .edits = options.edits,
                         .only_edited = options.only_edited,
                         .keep_moments = KeptTokens::AsksMoments(options.params,
                                                                 vocab_size)});
  if (row.has_nan()) return {.token = kNotANumber};
  if (row.max() == -std::numeric_limits<float>::infinity()) return {};
  const TokenId token = Choose(row, options);
  return {.token = token, .log_prob = row.LogProb(token)};
}

}  // namespace espalier
