#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/float_limits.h"
#include "kernels/logits/best_tokens.h"
#include "kernels/logits/row_scan.h"
#include "kernels/logits/score_key.h"
#include "kernels/select/select.h"

namespace espalier {
namespace {

// What the choice is by: the block with its edits made, in `copy` if it has
// any. Takes them off the front of `edits`. In kLogProbs an edited score is
// known only after the whole row is read, so the token stays out for now.
RowBlock ApplyEdits(const RowBlock& block, int begin, const RowOptions& options,
                    std::span<const TokenEdit>& edits, float* copy) {
  const TokenId end = begin + block.size;
  const bool has_edits = !edits.empty() && edits.front().token < end;
  if (!has_edits && !options.is_allow_list) return block;
  if (options.is_allow_list) {
    std::fill_n(copy, block.size, -kInf);
  } else {
    std::copy_n(block.values, block.size, copy);
  }
  for (; !edits.empty() && edits.front().token < end;
       edits = edits.subspan(1)) {
    const TokenEdit& edit = edits.front();
    const int i = edit.token - begin;
    const bool out = edit.banned || options.domain == ScoreDomain::kLogProbs;
    copy[i] =
        out ? -kInf
            : EditedScore(block.values[i], edit, options.repetition_penalty);
  }
  return {copy, block.size, MaxOfBlock(copy, block.size).max};
}

// The pass over the row.
LogSoftmax ScanRow(std::span<const float> logits, const RowOptions& options,
                   BestTokens& best) {
  std::span<const TokenEdit> edits = options.edits;
  float edited[kRowBlockSize];
  return ScanRow(logits, best, [&](const RowBlock& block, int begin) {
    return ApplyEdits(block, begin, options, edits, edited);
  });
}

// Whether a token may be left out of the row's answer.
bool IsBelow(const RowOptions& options, float log_prob) {
  return options.cum_log_prob + log_prob < options.min_sum;
}

// In kLogProbs, what the choice by logit is ranked by in the end: the
// log-probabilities of the chosen, and of the edited tokens after their edits.
std::vector<ScoreKey> LogProbKeys(std::span<const float> logits,
                                  const RowOptions& options,
                                  const LogSoftmax& softmax,
                                  const std::vector<ScoreKey>& chosen) {
  std::vector<ScoreKey> keys;
  keys.reserve(chosen.size() + options.edits.size());
  const auto add = [&](TokenId token, float score) {
    if (!(score > -kInf) || IsBelow(options, score)) return;
    keys.push_back(MakeScoreKey(score, token));
  };
  for (const ScoreKey key : chosen) {
    add(TokenOf(key), softmax.LogProb(logits[TokenOf(key)]));
  }
  for (const TokenEdit& edit : options.edits) {
    if (edit.banned) continue;
    const float log_prob = softmax.LogProb(logits[edit.token]);
    add(edit.token, EditedScore(log_prob, edit, options.repetition_penalty));
  }
  return keys;
}

std::vector<TokenScore> Select(std::span<const float> logits,
                               const RowOptions& options) {
  const int vocab_size = static_cast<int>(logits.size());
  const int num_best = std::min(options.num_candidates, vocab_size);
  const bool by_log_prob = options.domain == ScoreDomain::kLogProbs;
  BestTokens best(num_best, vocab_size);
  const LogSoftmax softmax = ScanRow(logits, options, best);
  if (softmax.max == -kInf) return {};
  std::vector<ScoreKey> keys;
  if (by_log_prob) {
    // Before the choice, which costs more than to look: of tokens without an
    // edit, higher logits have no lower log-probability.
    keys = best.TakeIf([&](ScoreKey key) {
      return !IsBelow(options, softmax.LogProb(logits[TokenOf(key)]));
    });
    keys = LogProbKeys(logits, options, softmax, keys);
  } else {
    keys = best.Take();
  }
  KeepBestSorted(num_best, keys);
  std::vector<TokenScore> tokens;
  tokens.reserve(keys.size());
  for (const ScoreKey key : keys) {
    const TokenId token = TokenOf(key);
    tokens.push_back(
        {token, by_log_prob ? ScoreOf(key) : softmax.LogProb(logits[token])});
  }
  return tokens;
}

}  // namespace

std::vector<TokenScore> SelectRow(std::span<const float> logits,
                                  const RowOptions& options) {
  CHECK_GE(options.num_candidates, 1);
  if (!options.edits.empty()) {
    CHECK_GE(options.edits.front().token, 0);
    CHECK_LT(options.edits.back().token, std::ssize(logits));
  }
  return logits.empty() ? std::vector<TokenScore>() : Select(logits, options);
}

}  // namespace espalier
