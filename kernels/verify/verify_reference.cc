#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/sample/random.h"
#include "kernels/verify/verify.h"

namespace espalier::reference {
namespace {

bool HasNan(std::span<const float> logits) {
  return std::ranges::any_of(logits, [](float x) { return std::isnan(x); });
}

double NoiseOf(const DrawOptions& options, RandomPurpose purpose) {
  return Uniform({.seed = options.params.seed,
                  .sample = options.sample,
                  .position = options.position,
                  .purpose = purpose},
                 0);
}

TokenId Invert(const std::vector<double>& probabilities, double uniform) {
  TokenId token = kNoToken;
  double sum = 0;
  for (size_t t = 0; t < probabilities.size() && sum <= uniform; ++t) {
    if (probabilities[t] == 0) continue;
    token = static_cast<TokenId>(t);
    sum += probabilities[t];
  }
  return token;
}

// Returns the log-probability of `token` in the raw row.
float RawLogProbOf(const VerifyRow& row, TokenId token) {
  return static_cast<float>(
      DrawLogProbabilities(row.logits, SamplingParams{})[token]);
}

}  // namespace

double VerifyPosition::Acceptance(TokenId draft) const {
  return q[draft] > 0 ? std::min(1.0, p[draft] / q[draft]) : 0;
}

std::vector<double> VerifyPosition::Recovery() const {
  std::vector<double> residual(p.size());
  for (size_t t = 0; t < p.size(); ++t) {
    residual[t] = std::max(p[t] - q[t], 0.0);
  }
  const double mass = std::accumulate(residual.begin(), residual.end(), 0.0);
  if (mass == 0) return p;
  for (double& x : residual) x /= mass;
  return residual;
}

VerifyPosition VerifyPositionOf(const VerifyRow& target_row,
                                const VerifyRow* draft_row, TokenId draft) {
  VerifyPosition position = {
      .p = DrawProbabilities(target_row.logits, target_row.options)};
  position.q.resize(position.p.size());
  if (draft_row == nullptr) {
    position.q[draft] = 1;
  } else if (!HasNan(draft_row->logits)) {
    position.q = DrawProbabilities(draft_row->logits, draft_row->options);
  }
  return position;
}

VerifiedTokens VerifyDrafts(const VerifyInputs& inputs) {
  const size_t k = inputs.drafts.size();
  VerifiedTokens verified = {.tokens = std::vector<TokenId>(k + 1, kNoToken),
                             .log_probs = std::vector<float>(k + 1)};
  for (size_t i = 0; i <= k; ++i) {
    const VerifyRow& row = inputs.target_rows[i];
    const TokenId draft = i < k ? inputs.drafts[i] : kNoToken;
    Draw draw = reference::DrawRow(row.logits, row.options);
    bool accepted = draft >= 0 && draw.token == draft;
    if (draft >= 0 && draw.token >= 0 &&
        inputs.mode == VerifyMode::kRejection && !row.options.params.greedy()) {
      const VerifyPosition position = VerifyPositionOf(
          row, inputs.draft_rows.empty() ? nullptr : &inputs.draft_rows[i],
          draft);
      accepted = position.Acceptance(draft) >=
                 NoiseOf(row.options, RandomPurpose::kAccept);
      draw.token = accepted
                       ? draft
                       : Invert(position.Recovery(),
                                NoiseOf(row.options, RandomPurpose::kRecover));
      draw.log_prob = RawLogProbOf(row, draw.token);
    }
    verified.tokens[i] = draw.token;
    verified.log_probs[i] = draw.log_prob;
    ++verified.length;
    if (!accepted) break;
  }
  return verified;
}

}  // namespace espalier::reference
