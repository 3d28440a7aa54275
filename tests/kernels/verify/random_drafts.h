// Random drafts of one sequence with the rows that verify them: target and
// draft are near each other, as a draft model is to its target, each row has
// options of its own, and there are rows without a number or a token.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/verify/verify.h"
#include "tests/kernels/sample/random_rows.h"

namespace espalier {

struct RandomDraft {
  std::string kind;
  int vocab_size = 0;
  VerifyMode mode = VerifyMode::kRejection;
  std::vector<TokenId> drafts;
  std::vector<std::vector<float>> logits;     // per row
  std::vector<std::vector<TokenEdit>> edits;  // per row
  // Point into these.
  std::vector<VerifyRow> target_rows;
  std::vector<VerifyRow> draft_rows;

  VerifyInputs inputs() const {
    return {.mode = mode,
            .drafts = drafts,
            .target_rows = target_rows,
            .draft_rows = draft_rows};
  }
};

// Returns `base` with noise. Special values stay: -inf, +inf and the widest
// logits keep their positions, and some ties remain ties.
inline std::vector<float> NearRow(const std::vector<float>& base, float noise,
                                  std::mt19937& random) {
  std::normal_distribution<float> normal(0, noise);
  std::vector<float> row = base;
  if (noise == 0) return row;
  for (float& l : row) {
    if (std::abs(l) < 1e6f && random() % 2 == 0) l += normal(random);
  }
  return row;
}

// Plants NaN or infinities in a row, sometimes.
inline void Spoil(std::vector<float>& logits, std::mt19937& random) {
  switch (random() % 60) {
    case 0:
      logits[random() % logits.size()] = kNan;
      break;
    case 1:
      std::fill(logits.begin(), logits.end(), -kInf);
      break;
    case 2:
      logits[random() % logits.size()] = kInf;
      break;
    case 3:
      for (size_t t = 0; t < logits.size(); t += 2) logits[t] = -kInf;
      break;
  }
}

// The vocabulary has a random size, or `vocab_size`.
inline RandomDraft DrawRandomDraft(std::mt19937& random, int vocab_size = 0) {
  RandomDraft c;
  c.kind =
      OneOf<std::string>(random, {"normal", "normal", "ties", "near ties",
                                  "constant", "rising", "peak", "outliers"});
  c.vocab_size =
      OneOf(random, {1, 2, 5, 63, 64, 65, 700, 1023, 1024, 1025, 3000});
  if (vocab_size > 0) c.vocab_size = vocab_size;
  c.mode = random() % 4 == 0 ? VerifyMode::kCoupled : VerifyMode::kRejection;
  const int k = OneOf(random, {0, 1, 1, 2, 3, 5, 8, 32});
  const bool has_rows = random() % 3 != 0;
  std::vector<float> base = Row(c.kind, c.vocab_size);
  const float factor = OneOf(random, {1.0f, 0.3f, 0.1f});
  for (float& l : base) l *= factor;
  const float noise = OneOf(random, {0.0f, 0.05f, 0.3f, 2.0f});
  SamplingParams params = RandomParams(random);
  const auto add_row = [&](uint32_t position) {
    c.logits.push_back(NearRow(base, noise, random));
    Spoil(c.logits.back(), random);
    c.edits.emplace_back();
    if (random() % 2 == 0) c.edits.back() = RandomEdits(random, c.vocab_size);
    if (random() % 4 == 0) {
      const uint64_t seed = params.seed;
      params = RandomParams(random);
      params.seed = seed;
    }
    // Distances that differ by less than the rounding of a float32 may change
    // places.
    if (c.kind == "near ties") params.typical_p = 1;
    VerifyRow row = {.options = {.params = params,
                                 .sample = 3,
                                 .position = position,
                                 .repetition_penalty = 1.3f,
                                 .is_allow_list = random() % 20 == 0}};
    return row;
  };
  const uint32_t base_position = random() % 1000;
  for (int i = 0; i <= k; ++i) {
    c.target_rows.push_back(add_row(base_position + i));
  }
  for (int i = 0; i < k && has_rows; ++i) {
    c.draft_rows.push_back(add_row(base_position + i));
  }
  // Rows do not move from here on.
  const auto set_views = [&](std::vector<VerifyRow>& rows, size_t first) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].logits = c.logits[first + i];
      rows[i].options.edits = c.edits[first + i];
    }
  };
  set_views(c.target_rows, 0);
  set_views(c.draft_rows, c.target_rows.size());
  for (int i = 0; i < k; ++i) {
    const VerifyRow& row = has_rows ? c.draft_rows[i] : c.target_rows[i];
    const int how = static_cast<int>(random() % 10);
    TokenId token = static_cast<TokenId>(random() % c.vocab_size);
    if (how < 7) token = DrawDraft(row, c.mode).token;
    c.drafts.push_back(token);
  }
  return c;
}

}  // namespace espalier
