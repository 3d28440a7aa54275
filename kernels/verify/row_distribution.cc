#include "kernels/verify/row_distribution.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/float_limits.h"

namespace espalier {
namespace {

ProcessedLogits::Options ReadingOf(const VerifyRow& row) {
  CHECK(!row.logits.empty());
  const int vocab_size = static_cast<int>(row.logits.size());
  return {
      .repetition_penalty = row.options.repetition_penalty,
      .edits = row.options.edits,
      .is_allow_list = row.options.is_allow_list,
      .keep_moments = KeptTokens::AsksMoments(row.options.params, vocab_size)};
}

}  // namespace

RowDistribution::RowDistribution(const VerifyRow& row)
    : row_(row.logits, ReadingOf(row)) {
  if (row_.has_nan() || row_.max() == -kInf) return;
  if (row.options.params.greedy()) {
    best_ = row_.BestToken();
  } else {
    kept_.emplace(row_, row.options.params);
  }
}

double RowDistribution::Probability(TokenId token) const {
  if (kept_.has_value()) return kept_->Probability(token);
  return token == best_ && has_tokens() ? 1 : 0;
}

double RowDistribution::WriteWeights(float* weights) const {
  if (kept_.has_value()) return kept_->WriteWeights(weights);
  WriteOneHot(best_, row_.vocab_size(), weights);
  return has_tokens() ? 1 : 0;
}

void WriteOneHot(TokenId token, int vocab_size, float* weights) {
  std::fill_n(weights, (vocab_size + kChunkSize - 1) / kChunkSize * kChunkSize,
              0.0f);
  if (token >= 0) weights[token] = 1;
}

}  // namespace espalier
