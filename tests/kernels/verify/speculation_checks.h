// Checks of speculative decoding on models that can be enumerated: a few tokens
// and a table of logits by the last two of the text, for the target and for a
// draft near it. Each check gives a p-value: how likely what came out is, if
// the text is distributed as the target's alone. A verifier is a pair of
// functions, so that the same checks see the real one and ones with a planted
// fault.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "kernels/logits/score_processors.h"
#include "kernels/verify/verify.h"
#include "tests/p_value.h"

namespace espalier {

struct Verifier {
  std::function<TokenId(const VerifyRow& draft_row)> draft;
  // The tokens that the text gains.
  std::function<std::vector<TokenId>(const VerifyInputs&)> verify;
  // True if a row's edits include the drafted tokens before it.
  bool edits_see_drafts = true;
};

inline Verifier RealVerifier(VerifyMode mode = VerifyMode::kRejection) {
  return {
      .draft =
          [mode](const VerifyRow& row) { return DrawDraft(row, mode).token; },
      .verify =
          [](const VerifyInputs& inputs) {
            VerifiedTokens verified = VerifyDrafts(inputs);
            verified.tokens.resize(verified.length);
            return verified.tokens;
          }};
}

// A target and a draft that predict by the last two tokens.
class TableModel {
 public:
  // Logits of the target have standard deviation `spread`, and those of the
  // draft are so far from them.
  TableModel(int vocab_size, float spread, float distance, int seed)
      : vocab_size_(vocab_size) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const int num_contexts = (vocab_size + 1) * (vocab_size + 1);
    for (int c = 0; c < num_contexts; ++c) {
      target_.emplace_back();
      draft_.emplace_back();
      for (int t = 0; t < vocab_size; ++t) {
        target_[c].push_back(spread * normal(random));
        draft_[c].push_back(target_[c][t] + distance * normal(random));
      }
    }
  }

  int vocab_size() const { return vocab_size_; }
  const std::vector<float>& target(std::span<const TokenId> text) const {
    return target_[ContextOf(text)];
  }
  const std::vector<float>& draft(std::span<const TokenId> text) const {
    return draft_[ContextOf(text)];
  }

 private:
  size_t ContextOf(std::span<const TokenId> text) const {
    size_t context = 0;
    for (size_t back = 1; back <= 2; ++back) {
      const TokenId token =
          text.size() >= back ? text[text.size() - back] : vocab_size_;
      context = context * (vocab_size_ + 1) + token;
    }
    return context;
  }

  int vocab_size_;
  std::vector<std::vector<float>> target_, draft_;  // [contexts, vocab_size]
};

enum class DraftKind { kModel, kText };

struct SpeculationCase {
  TableModel model;
  SamplingParams params = {};
  SamplingParams draft_params = {};
  ScoreProcessors processors = {};
  int k = 1;
  VerifyMode mode = VerifyMode::kRejection;
  DraftKind draft_kind = DraftKind::kModel;
};

// The first tokens of one text; `sample` distinguishes texts.
class Speculation {
 public:
  static constexpr int kTokens = 3;

  Speculation(const SpeculationCase& c, const Verifier& verifier,
              uint32_t sample)
      : case_(c), verifier_(verifier), sample_(sample) {}

  // Returns the text. `*first_accepted`: the draft at the first position was
  // accepted.
  std::array<TokenId, kTokens> Run(bool* first_accepted = nullptr) {
    while (std::ssize(text_) < kTokens) {
      const bool is_first = text_.empty();
      const size_t accepted = Step();
      if (is_first && first_accepted != nullptr) *first_accepted = accepted > 0;
    }
    return {text_[0], text_[1], text_[2]};
  }

 private:
  // Returns the number of accepted drafts.
  size_t Step() {
    const size_t length = text_.size();
    edits_.clear();
    edits_.reserve(2 * case_.k + 1);  // views stay valid
    std::vector<VerifyRow> targets, draft_rows;
    for (int i = 0; i < case_.k; ++i) {
      targets.push_back(RowOf(case_.model.target(text_), length, case_.params));
      text_.push_back(NextDraft(length, draft_rows));
    }
    targets.push_back(RowOf(case_.model.target(text_), length, case_.params));
    const std::vector<TokenId> drafts(text_.begin() + length, text_.end());
    const std::vector<TokenId> gained =
        verifier_.verify({.mode = case_.mode,
                          .drafts = drafts,
                          .target_rows = targets,
                          .draft_rows = draft_rows});
    text_.resize(length);
    text_.insert(text_.end(), gained.begin(), gained.end());
    return gained.size() - 1;
  }

  TokenId NextDraft(size_t length, std::vector<VerifyRow>& draft_rows) {
    if (case_.draft_kind == DraftKind::kText) {
      // Any function of the text.
      return static_cast<TokenId>((text_.empty() ? 1 : text_.back() + 1) %
                                  case_.model.vocab_size());
    }
    const VerifyRow row =
        RowOf(case_.model.draft(text_), length, case_.draft_params);
    draft_rows.push_back(row);
    return verifier_.draft(row);
  }

  // The row after text_, of which the first `length` tokens are verified.
  VerifyRow RowOf(const std::vector<float>& logits, size_t length,
                  const SamplingParams& params) {
    const size_t seen = verifier_.edits_see_drafts ? text_.size() : length;
    edits_.push_back(
        CollectEdits(case_.processors, std::span(text_).first(seen),
                     static_cast<int>(seen), case_.model.vocab_size()));
    return {
        .logits = logits,
        .options = {.params = params,
                    .sample = sample_,
                    .position = static_cast<uint32_t>(text_.size()),
                    .repetition_penalty = case_.processors.repetition_penalty,
                    .edits = edits_.back().edits}};
  }

  const SpeculationCase& case_;
  const Verifier& verifier_;
  uint32_t sample_;
  std::vector<TokenId> text_;
  std::vector<RowEdits> edits_;
};

inline std::vector<double> TargetProbabilities(const SpeculationCase& c,
                                               std::span<const TokenId> text) {
  const RowEdits edits = CollectEdits(
      c.processors, text, static_cast<int>(text.size()), c.model.vocab_size());
  return reference::DrawProbabilities(
      c.model.target(text),
      {.params = c.params,
       .repetition_penalty = c.processors.repetition_penalty,
       .edits = edits.edits});
}

// The probability of every text of Speculation::kTokens tokens, the last token
// running fastest.
inline std::vector<double> EnumerateTexts(const SpeculationCase& c) {
  std::vector<double> joint;
  std::vector<TokenId> text;
  const std::function<void(double)> extend = [&](double probability) {
    if (std::ssize(text) == Speculation::kTokens) {
      joint.push_back(probability);
      return;
    }
    const std::vector<double> p = TargetProbabilities(c, text);
    for (TokenId t = 0; t < c.model.vocab_size(); ++t) {
      text.push_back(t);
      extend(probability * p[t]);
      text.pop_back();
    }
  };
  extend(1);
  return joint;
}

// Counts over many texts.
struct SpeculationCounts {
  std::vector<double> joint;    // probability of each text
  std::vector<int64_t> counts;  // how often it came
  int64_t num_texts = 0;
  int64_t num_first_accepted = 0;
};

inline SpeculationCounts CountTexts(const Verifier& verifier,
                                    const SpeculationCase& c, int num_texts) {
  SpeculationCounts counted = {
      .joint = EnumerateTexts(c), .counts = {}, .num_texts = num_texts};
  counted.counts.resize(counted.joint.size());
  for (int i = 0; i < num_texts; ++i) {
    bool accepted = false;
    int cell = 0;
    for (const TokenId token : Speculation(c, verifier, i).Run(&accepted)) {
      cell = cell * c.model.vocab_size() + token;
    }
    ++counted.counts[cell];
    counted.num_first_accepted += accepted;
  }
  return counted;
}

inline double TextsPValue(const SpeculationCounts& counted) {
  return testing::ChiSquarePValue(counted.joint, counted.counts);
}

// True if a test that allows 10 standard deviations of Pearson's statistic
// would fail: an impossible text, or a statistic beyond them.
inline bool TenSigmaSees(const SpeculationCounts& counted) {
  double statistic = 0;
  int cells = 0;
  for (size_t i = 0; i < counted.counts.size(); ++i) {
    const double expected = counted.joint[i] * counted.num_texts;
    if (expected == 0 && counted.counts[i] > 0) return true;
    if (expected < 5) continue;
    const double difference = counted.counts[i] - expected;
    statistic += difference * difference / expected;
    ++cells;
  }
  const int degrees = cells - 1;
  return statistic > degrees + 10 * std::sqrt(2.0 * degrees);
}

// The rate at which the first draft of a text is accepted, against the sum of
// min(p, q): a verifier that accepts less gives the right texts, too late.
inline double AcceptancePValue(const SpeculationCounts& counted,
                               const SpeculationCase& c) {
  const VerifyRow target = {.logits = c.model.target({}),
                            .options = {.params = c.params}};
  const VerifyRow draft = {.logits = c.model.draft({}),
                           .options = {.params = c.draft_params}};
  const reference::VerifyPosition position =
      reference::VerifyPositionOf(target, &draft, 0);
  double rate = 0;
  for (TokenId t = 0; t < c.model.vocab_size(); ++t) {
    rate += position.q[t] * position.Acceptance(t);
  }
  const double variance = counted.num_texts * rate * (1 - rate);
  const double difference =
      counted.num_first_accepted - counted.num_texts * rate;
  if (variance < 1) return std::abs(difference) < 1 ? 1 : 0;
  return testing::NormalPValue(difference / std::sqrt(variance));
}

}  // namespace espalier
