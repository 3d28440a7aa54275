#include <limits>

#include "base/check.h"
#include "kernels/edited_row.h"
#include "kernels/kept_tokens.h"
#include "kernels/random.h"
#include "kernels/sample.h"

namespace espalier {
namespace {

// The best token, ties to the lower one.
TokenId BestToken(const EditedRow& row) {
  TokenId first_token = 0;
  for (const EditedRow::Block& block : row.blocks()) {
    for (int i = 0; block.max == row.max() && i < block.size; ++i) {
      if (block.values[i] == row.max()) return first_token + i;
    }
    first_token += block.size;
  }
  return kNoToken;
}

TokenId Choose(const EditedRow& row, const DrawOptions& options) {
  if (options.params.greedy()) return BestToken(row);
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
  const EditedRow row(logits, {.repetition_penalty = options.repetition_penalty,
                               .edits = options.edits,
                               .only_edited = options.only_edited,
                               .keep_terms = KeptTokens::WeighsAll(
                                   options.params, vocab_size)});
  if (row.has_nan()) return {.token = kNotANumber};
  if (row.max() == -std::numeric_limits<float>::infinity()) return {};
  const TokenId token = Choose(row, options);
  return {.token = token, .log_prob = row.LogProb(token)};
}

}  // namespace espalier
