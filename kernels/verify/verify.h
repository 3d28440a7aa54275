// Verification: the rejection sampler of speculative decoding. A draft proposes
// k tokens for one sequence. The target model computes the k + 1 rows of logits
// that follow the text and each of these. VerifyDrafts() accepts a prefix of
// the draft and adds one token. The resulting text is distributed as if the
// target had sampled token after token.
//
//   target row   0       1       2       3          position base + row
//   draft        d0      d1      d2
//                accept  accept  reject
//   tokens       d0      d1      r                  length 3, padded with -1
//
// p is the distribution of plain sampling (kernels/sample/sample.h) in the
// target's row, and q the one in the draft's: after edits, temperature and
// filters, each row with its own options. A draft without a model (found in the
// text itself, for example) has no rows: its q is 1 at the drafted token.
//
//   kRejection   accepts a drafted token d if p(d) / q(d) >= u, and never if
//                q(d) is 0. For the first rejected d it samples from
//                max(p - q, 0), renormalised. If q(d) is 1, that is p without
//                d. If p - q is positive nowhere, because of rounding, it is p.
//   kCoupled     samples from p as plain sampling does at this position, and
//                accepts d if the token is d. For drafts without rows, or
//                sampled with the noise of plain sampling: a text has the same
//                tokens with and without drafts.
//
// A greedy target row (temperature 0) needs no random number: in both modes d
// is accepted if it is the best edited token, and is replaced by that token
// otherwise. If all of the draft is accepted, plain sampling from row k gives
// the token after it, the bonus, in both modes.
//
// Each use of noise has its own purpose, at (seed, sample, position) of the
// target's row: kDraft samples the draft, kAccept gives u, kRecover the token
// after a rejection, and kDraw the bonus (random.h). Sharing one number between
// two of these uses would bias the text.
//
// Sources: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192; Chen et al.
// 2023, https://arxiv.org/abs/2302.01318.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/sample/sample.h"

namespace espalier {

// True if filters, not only the temperature, shape the distribution: any option
// but temperature and seed is set.
inline bool HasFilters(const SamplingParams& params) {
  const SamplingParams off = {.temperature = params.temperature,
                              .seed = params.seed};
  return !params.greedy() && std::memcmp(&params, &off, sizeof(off)) != 0;
}

enum class VerifyMode { kRejection, kCoupled };

// A row of logits, and its sampling options.
struct VerifyRow {
  std::span<const float> logits = {};  // [vocab_size]  f32  host; not changed
  DrawOptions options = {};
};

// One sequence.
struct VerifyInputs {
  VerifyMode mode = VerifyMode::kRejection;
  // [k], may be empty. A negative one ends the draft: it and all after it are
  // ignored.
  std::span<const TokenId> drafts = {};
  std::span<const VerifyRow> target_rows = {};  // [k + 1]
  // [k], or empty: the draft has no rows. Not read if coupled. A row without a
  // possible token, or with a NaN, has probability 0 everywhere.
  std::span<const VerifyRow> draft_rows = {};
};

struct VerifiedTokens {
  // [k + 1]: accepted tokens, one more, and kNoToken. The added token is
  // kNotANumber if a logit of its target row is NaN, and kNoToken if that row
  // has no possible token (sample.h).
  std::vector<TokenId> tokens;
  // [k + 1], nats: of each token in the target's raw row, as Draw::log_prob; 0
  // without a token.
  std::vector<float> log_probs;
  int length = 0;  // accepted tokens, plus one

  int num_accepted() const { return length - 1; }
  friend bool operator==(const VerifiedTokens&,
                         const VerifiedTokens&) = default;
};

// Samples the next token of a draft from a row of the draft model, with the
// noise of `mode`. `row.options` has the seed, sample and position of the
// target's row.
Draw DrawDraft(const VerifyRow& row, VerifyMode mode);

// Verifies the draft of one sequence. Reads target and draft rows up to the
// rejected token, each at about the cost of DrawRow, and the draft's row of
// that token again. Against the reference, p / q may differ by 1e-6 of itself,
// and p - q by 1e-6 of p (see DrawRow).
// REQUIRES: the numbers of rows above; one vocabulary, which has all drafts.
VerifiedTokens VerifyDrafts(const VerifyInputs& inputs);

namespace reference {

// Reference implementation: sorts, and sums in double.
VerifiedTokens VerifyDrafts(const VerifyInputs& inputs);

// One position of kRejection, as distributions over all tokens.
struct VerifyPosition {
  // [vocab_size]
  std::vector<double> p = {};
  std::vector<double> q = {};

  // Returns the probability that `draft` is accepted.
  double Acceptance(TokenId draft) const;
  // Returns the distribution that replaces a rejected draft.
  std::vector<double> Recovery() const;
};

// `draft_row` may be null: `draft` has no rows.
// REQUIRES: no NaN in the target's row.
VerifyPosition VerifyPositionOf(const VerifyRow& target_row,
                                const VerifyRow* draft_row, TokenId draft);

}  // namespace reference
}  // namespace espalier
