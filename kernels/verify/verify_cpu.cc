#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/logits/row_block.h"
#include "kernels/sample/random.h"
#include "kernels/scratch.h"
#include "kernels/verify/recover.h"
#include "kernels/verify/row_distribution.h"
#include "kernels/verify/verify.h"

namespace espalier {
namespace {

double UniformFor(const DrawOptions& options, RandomPurpose purpose) {
  return Uniform({.seed = options.params.seed,
                  .sample = options.sample,
                  .position = options.position,
                  .purpose = purpose},
                 0);
}

// Returns the size of weights, in whole chunks.
size_t WeightsSize(const VerifyRow& row) {
  return (row.logits.size() + kChunkSize - 1) / kChunkSize * kChunkSize;
}

TokenWeights WeightsOf(const RowDistribution& distribution,
                       const VerifyRow& row, ScratchUse use) {
  float* const weights = Scratch(use, WeightsSize(row));
  const double total = distribution.WriteWeights(weights);
  return {.weights = {weights, row.logits.size()}, .total = total};
}

// Samples the token that replaces a rejected `draft`.
TokenId Recover(const RowDistribution& target, const VerifyRow& target_row,
                const VerifyRow* draft_row, TokenId draft) {
  // The target comes first, because the draft's row reuses the thread's
  // scratch.
  const TokenWeights p =
      WeightsOf(target, target_row, ScratchUse::kTargetWeights);
  TokenWeights q;
  if (draft_row != nullptr) {
    q = WeightsOf(RowDistribution(*draft_row), *draft_row,
                  ScratchUse::kDraftWeights);
  } else {
    float* const weights =
        Scratch(ScratchUse::kDraftWeights, WeightsSize(target_row));
    WriteOneHot(draft, static_cast<int>(p.weights.size()), weights);
    q = {.weights = {weights, p.weights.size()}, .total = 1};
  }
  return DrawRecovered(p, q,
                       UniformFor(target_row.options, RandomPurpose::kRecover));
}

// Returns a position's token: the draft if it is accepted.
Draw JudgeDraft(const VerifyRow& target_row, const VerifyRow* draft_row,
                TokenId draft, bool* accepted) {
  const double q =
      draft_row != nullptr ? RowDistribution(*draft_row).Probability(draft) : 1;
  const RowDistribution target(target_row);
  if (target.has_nan()) return {.token = kNotANumber};
  if (!target.has_tokens()) return {};
  const double u = UniformFor(target_row.options, RandomPurpose::kAccept);
  *accepted = q > 0 && target.Probability(draft) >= u * q;
  const TokenId token =
      *accepted ? draft : Recover(target, target_row, draft_row, draft);
  return {.token = token, .log_prob = target.LogProb(token)};
}

void CheckInputs(const VerifyInputs& inputs) {
  const size_t k = inputs.drafts.size();
  CHECK(inputs.target_rows.size() == k + 1);
  CHECK(inputs.draft_rows.empty() || inputs.draft_rows.size() == k);
  const size_t vocab_size = inputs.target_rows[0].logits.size();
  for (const TokenId draft : inputs.drafts) {
    CHECK(draft < static_cast<int64_t>(vocab_size));
  }
  const auto is_of_vocabulary = [&](const VerifyRow& row) {
    return row.logits.size() == vocab_size;
  };
  CHECK(std::ranges::all_of(inputs.target_rows, is_of_vocabulary));
  CHECK(std::ranges::all_of(inputs.draft_rows, is_of_vocabulary));
}

}  // namespace

Draw DrawDraft(const VerifyRow& row, VerifyMode mode) {
  return DrawRow(row.logits, row.options,
                 mode == VerifyMode::kRejection ? RandomPurpose::kDraft
                                                : RandomPurpose::kDraw);
}

VerifiedTokens VerifyDrafts(const VerifyInputs& inputs) {
  CheckInputs(inputs);
  const size_t k = inputs.drafts.size();
  VerifiedTokens verified = {.tokens = std::vector<TokenId>(k + 1, kNoToken),
                             .log_probs = std::vector<float>(k + 1)};
  bool accepted = true;
  for (size_t i = 0; accepted; ++i) {
    const VerifyRow& row = inputs.target_rows[i];
    const TokenId draft = i < k ? inputs.drafts[i] : kNoToken;
    const bool by_chance = draft >= 0 &&
                           inputs.mode == VerifyMode::kRejection &&
                           !row.options.params.greedy();
    Draw draw;
    accepted = false;
    if (by_chance) {
      const bool has_rows = !inputs.draft_rows.empty();
      draw = JudgeDraft(row, has_rows ? &inputs.draft_rows[i] : nullptr, draft,
                        &accepted);
    } else {
      draw = DrawRow(row.logits, row.options);
      accepted = draft >= 0 && draw.token == draft;
    }
    verified.tokens[i] = draw.token;
    verified.log_probs[i] = draw.log_prob;
    ++verified.length;
  }
  return verified;
}

}  // namespace espalier
