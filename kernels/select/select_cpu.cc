#include <algorithm>
#include <cmath>
#include <optional>
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

// Returns the block that tokens are chosen from: with its edits applied, in
// `copy` if it has any. Removes those edits from the front of `edits`. In
// kLogProbs an edited score needs the softmax of the whole row, so edited
// tokens are excluded for now.
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

bool Renormalizes(const RowOptions& options) {
  return options.renormalizes && options.domain == ScoreDomain::kLogProbs &&
         (!options.edits.empty() || options.is_allow_list);
}

// Returns a log-probability after its edit.
float ScoreAfter(const TokenEdit& edit, std::span<const float> logits,
                 const RowOptions& options, const LogSoftmax& softmax) {
  if (edit.banned) return -kInf;
  return EditedScore(softmax.LogProb(logits[edit.token]), edit,
                     options.repetition_penalty);
}

// Returns the softmax of edited log-probabilities.
//   others  the sum of the logits of tokens without an edit
LogSoftmax SoftmaxOfScores(std::span<const float> logits,
                           const RowOptions& options, const LogSoftmax& softmax,
                           const RunningLogSum& others) {
  const float best_other =
      others.max() > -kInf ? softmax.LogProb(others.max()) : -kInf;
  float max = best_other;
  for (const TokenEdit& edit : options.edits) {
    max = std::max(max, ScoreAfter(edit, logits, options, softmax));
  }
  if (!std::isfinite(max)) return {max, 0};
  const auto share = [&](float score) {
    return std::exp(static_cast<double>(score) - max);
  };
  double sum = best_other > -kInf ? others.sum() * share(best_other) : 0;
  for (const TokenEdit& edit : options.edits) {
    sum += share(ScoreAfter(edit, logits, options, softmax));
  }
  return {max, static_cast<float>(std::log(sum))};
}

// The terms that turn a row's logits into scores.
struct RowScores {
  LogSoftmax softmax;
  std::optional<LogSoftmax> again = {};  // over edited log-probabilities

  float Of(float log_prob) const {
    return again ? again->LogProb(log_prob) : log_prob;
  }
};

// Makes the pass over the row.
RowScores ScanRow(std::span<const float> logits, const RowOptions& options,
                  BestTokens& best) {
  std::span<const TokenEdit> edits = options.edits;
  const bool renormalizes = Renormalizes(options);
  float edited[kRowBlockSize];
  RunningLogSum others;
  RowScores scores = {
      .softmax = ScanRow(logits, best, [&](const RowBlock& block, int begin) {
        const RowBlock left = ApplyEdits(block, begin, options, edits, edited);
        if (renormalizes) others.Add(left.values, left.size, left.max);
        return left;
      })};
  if (renormalizes) {
    scores.again = SoftmaxOfScores(logits, options, scores.softmax, others);
  }
  return scores;
}

// True if the row's result may omit a token with this score.
bool IsBelow(const RowOptions& options, float score) {
  return options.cum_log_prob + score < options.min_sum;
}

// Returns the keys of the final ranking in kLogProbs: the log-probabilities of
// the chosen tokens, and of the edited tokens after their edits.
std::vector<ScoreKey> LogProbKeys(std::span<const float> logits,
                                  const RowOptions& options,
                                  const RowScores& scores,
                                  const std::vector<ScoreKey>& chosen) {
  std::vector<ScoreKey> keys;
  keys.reserve(chosen.size() + options.edits.size());
  const auto add = [&](TokenId token, float log_prob) {
    if (log_prob == -kInf) return;
    const float score = scores.Of(log_prob);
    if (!(score > -kInf) || IsBelow(options, score)) return;
    keys.push_back(MakeScoreKey(score, token));
  };
  for (const ScoreKey key : chosen) {
    add(TokenOf(key), scores.softmax.LogProb(logits[TokenOf(key)]));
  }
  for (const TokenEdit& edit : options.edits) {
    if (edit.banned) continue;
    add(edit.token, ScoreAfter(edit, logits, options, scores.softmax));
  }
  return keys;
}

std::vector<TokenScore> Select(std::span<const float> logits,
                               const RowOptions& options) {
  const int vocab_size = static_cast<int>(logits.size());
  const int num_best = std::min(options.num_candidates, vocab_size);
  const bool by_log_prob = options.domain == ScoreDomain::kLogProbs;
  BestTokens best(num_best, vocab_size);
  const RowScores scores = ScanRow(logits, options, best);
  const LogSoftmax& softmax = scores.softmax;
  if (softmax.max == -kInf) return {};
  std::vector<ScoreKey> keys;
  if (by_log_prob) {
    // Filters before ranking, which costs more than the test: among tokens
    // without an edit, higher logits have no lower log-probability.
    keys = best.TakeIf([&](ScoreKey key) {
      return !IsBelow(options,
                      scores.Of(softmax.LogProb(logits[TokenOf(key)])));
    });
    keys = LogProbKeys(logits, options, scores, keys);
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
