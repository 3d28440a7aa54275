// Verification: the rejection sampler of speculative decoding. A draft proposes
// k tokens for one sequence, the target model gives the k + 1 rows of logits
// that follow the text and each of these, and VerifyDrafts() accepts a prefix
// of the draft and adds one token: what the text gains is distributed as if the
// target had drawn token after token.
//
//   target row   0       1       2       3          position base + row
//   draft        d0      d1      d2
//                accept  accept  reject
//   tokens       d0      d1      r                  length 3, padded with -1
//
// p is what plain sampling (kernels/sample/sample.h) draws from in the target's
// row, and q what it draws from in the draft's: after edits, temperature and
// filters, each row with its own options. A draft that does not come from a
// model (found in the text itself, say) has no rows: its q is 1 at the drafted
// token.
//
//   kRejection   accepts a drafted token d if p(d) / q(d) >= u, and never if
//                q(d) is 0; at the first d that is rejected, draws from
//                max(p - q, 0), renormalised. Where q is 1 at d, that is p
//                without d; where p - q is nowhere positive, which takes a
//                rounding, it is p.
//   kCoupled     draws from p as plain sampling does at this position, and
//                accepts d if that is d. For drafts without rows, or drawn with
//                the noise of plain sampling: a text has the same tokens with
//                and without drafts.
//
// A greedy target row (temperature 0) needs no chance: in both modes d is
// accepted if it is the best edited token, and that is the token otherwise. If
// all of the draft is accepted, the token after it, the bonus, is what plain
// sampling draws from row k, in both modes.
//
// The noise has a purpose of its own for each use, all at (seed, sample,
// position) of the target's row: kDraft draws the draft, kAccept gives u,
// kRecover what follows a rejection, and kDraw the bonus (random.h). Sharing
// one of them among two of these uses would bias the text.
//
// Sources: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192; Chen et al.
// 2023, https://arxiv.org/abs/2302.01318.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/sample/sample.h"

namespace espalier {

enum class VerifyMode { kRejection, kCoupled };

// A row of logits, and what is drawn from it.
struct VerifyRow {
  std::span<const float> logits = {};  // [vocab_size]  f32  host; not changed
  DrawOptions options = {};
};

// One sequence.
struct VerifyInputs {
  VerifyMode mode = VerifyMode::kRejection;
  // [k], may be empty. A negative one ends the draft: it and all after it
  // count as if they were not there.
  std::span<const TokenId> drafts = {};
  std::span<const VerifyRow> target_rows = {};  // [k + 1]
  // [k], or empty: the draft has no rows. Not read if coupled. One without a
  // possible token, or with a NaN, has probability 0 everywhere.
  std::span<const VerifyRow> draft_rows = {};
};

struct VerifiedTokens {
  // [k + 1]: accepted tokens, one more, and kNoToken. The one more is
  // kNotANumber if a logit of its target row is NaN, and kNoToken if that row
  // has no possible token (sample.h).
  std::vector<TokenId> tokens;
  // [k + 1], nats: of each token in the target's raw row, as Draw::log_prob; 0
  // where there is none.
  std::vector<float> log_probs;
  int length = 0;  // accepted tokens, and one

  int num_accepted() const { return length - 1; }
  friend bool operator==(const VerifiedTokens&,
                         const VerifiedTokens&) = default;
};

// Draws the next token of a draft from a row of the draft model: with the noise
// that `mode` asks for. `row.options` has the seed, sample and position of the
// target's row.
Draw DrawDraft(const VerifyRow& row, VerifyMode mode);

// Judges the draft of one sequence. Reads target rows, and rows of the draft,
// up to the one that rejects, each about as DrawRow does; where one rejects it
// reads the draft's row again. Against the twin, p / q may differ by 1e-6 of
// itself, and p - q by 1e-6 of p (DrawRow says why).
// REQUIRES: as many rows as said; all of one vocabulary, which has all drafts.
VerifiedTokens VerifyDrafts(const VerifyInputs& inputs);

namespace reference {

// The twin: sorts, sums in double.
VerifiedTokens VerifyDrafts(const VerifyInputs& inputs);

// One position of kRejection, as distributions over all tokens.
struct VerifyPosition {
  // [vocab_size]
  std::vector<double> p = {};
  std::vector<double> q = {};

  // The probability that `draft` is accepted.
  double Acceptance(TokenId draft) const;
  // What is drawn from where it is not.
  std::vector<double> Recovery() const;
};

// `draft_row` may be null: `draft` has no rows.
// REQUIRES: no NaN in the target's row.
VerifyPosition VerifyPositionOf(const VerifyRow& target_row,
                                const VerifyRow* draft_row, TokenId draft);

}  // namespace reference
}  // namespace espalier
