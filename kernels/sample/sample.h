// Sampling: one token drawn from a row of logits. The row is processed in this
// order (vLLM's):
//
//   edits        bans, biases and penalties (score_processors.h), on logits
//   temperature  z = logit / temperature; 0 is greedy: the highest edited
//                logit, ties to the lower token, and no filter applies
//   min_p        drops tokens less likely than min_p times the likeliest
//   top_k        drops tokens below the k-th highest
//   top_p        renormalises p; drops a token if the likelier ones have top_p
//                or more together
//   typical_p    renormalises p, with entropy H; drops a token if those with a
//                smaller |-log p - H| have typical_p or more together
//   draw         from the tokens left, renormalised
//
// Every filter is a threshold, so equal tokens stay or go together: top_k may
// keep more than k. The likeliest token, and the most typical one, always stay.
//
// A draw inverts the cumulative distribution over ascending tokens at one
// uniform number, a pure function of (seed, sample, position): it does not
// depend on rows, batch mates or the order of work. Two devices may differ
// where the number falls within rounding of a boundary between two tokens, and
// where a filter's sum falls within rounding of its bound.
//
// Source: the nucleus: Holtzman et al. 2020; typical sampling: Meister et al.
// 2023; min_p: Nguyen et al. 2024.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/logits/score_processors.h"
#include "kernels/sample/random.h"

namespace espalier {

// Sampling options of a request; constant during its life. Defaults are off.
struct SamplingParams {
  float temperature = 1.0f;  // >= 0; 0 is greedy
  float min_p = 0.0f;        // in [0, 1]; 0 is off
  int top_k = 0;             // 0, or the vocabulary or more, is off
  float top_p = 1.0f;        // in (0, 1]; 1 is off, exactly
  float typical_p = 1.0f;    // in (0, 1]; 1 is off, exactly
  uint32_t padding = 0;      // 0: params are compared as bytes
  uint64_t seed = 0;

  bool greedy() const { return temperature == 0.0f; }
};

// The draws from one row.
struct DrawOptions {
  SamplingParams params = {};
  uint32_t sample = 0;    // index in the request
  uint32_t position = 0;  // tokens that it has generated
  // As in RowOptions (select.h).
  float repetition_penalty = 1.0f;
  std::span<const TokenEdit> edits = {};
  bool is_allow_list = false;
};

// In place of a token. A row with a NaN gives kNotANumber. A row in which every
// edited logit is -inf gives kNoToken. Logits of +inf share all probability
// evenly.
inline constexpr TokenId kNoToken = -1;
inline constexpr TokenId kNotANumber = -2;

struct Draw {
  TokenId token = kNoToken;
  // Nats; of the raw row, before edits, temperature and filters.
  float log_prob = 0;
  friend bool operator==(const Draw&, const Draw&) = default;
};

// Draws from one row.
//   logits  [vocab_size]  f32  host; not changed
// Reads the row once if filters leave few tokens, and sorts only these
// (kept_tokens.h). Against the reference, float32 sums within a block may move
// a boundary between two tokens, or a bound of top_p and typical_p, by 1e-7 of
// the total. Two tokens whose distances differ by less than a float32 resolves
// may change places in the order of typical_p. min_p and top_k are exact. The
// cost against a selection pass: benchmarks/kernels/sample_benchmark.cc.
// `purpose` chooses the stream of random numbers.
// REQUIRES: vocab_size >= 1; edited tokens in [0, vocab_size).
Draw DrawRow(std::span<const float> logits, const DrawOptions& options,
             RandomPurpose purpose = RandomPurpose::kDraw);

// Draws once for each of `samples`, ignoring options.sample: the same bits as
// DrawRow of each, but the row is read once.
std::vector<Draw> DrawSamples(std::span<const float> logits,
                              const DrawOptions& options,
                              std::span<const int> samples);

namespace reference {

// Reference implementation: sorts, and sums in double.
Draw DrawRow(std::span<const float> logits, const DrawOptions& options,
             RandomPurpose purpose = RandomPurpose::kDraw);

// Returns the row after its edits, exact to float32's operations.
std::vector<float> EditedScores(std::span<const float> scores,
                                const DrawOptions& options);

// Returns the log-probability of every token of an edited row, nats; -inf for
// dropped tokens. Greedy: 0 for the token.
// REQUIRES: no NaN.
std::vector<double> DrawLogProbabilities(std::span<const float> edited,
                                         const SamplingParams& params);

// Returns the probability of every token; all 0 if no token is possible.
// Greedy: 1 for the token.
std::vector<double> DrawProbabilities(std::span<const float> logits,
                                      const DrawOptions& options);

}  // namespace reference
}  // namespace espalier
