#include "beam/validate_result.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/constraint_state.h"
#include "base/status.h"
#include "exec_request/draft_tree.h"
#include "exec_request/surviving_candidates.h"
#include "kernels/sample/sample.h"

namespace espalier {
namespace {

bool RanksByNoise(const PlanSelection& asked) {
  const RowSelection* const rows = asked.as_rows();
  return rows != nullptr && rows->gumbel_top_k;
}

// Returns the lowest valid token. In place of a token, some results have a
// negative number that names the reason.
TokenId LowestToken(const PlanSelection& asked) {
  const bool may_lack =
      asked.kind() == SelectionKind::kDraws || RanksByNoise(asked);
  return may_lack ? kNotANumber : 0;
}

bool MayFollow(const PlanSelection& asked, int logits_row, TokenId token) {
  if (!asked.places.empty()) {
    const auto [state, room] = asked.places[logits_row];
    return IsLegalToken(*asked.params->constraint, state, room, token);
  }
  return asked.allowed.empty() ||
         std::ranges::binary_search(asked.allowed[logits_row], token);
}

//   num_rows    rows that the candidate may follow
//   logits_row  row of logits within the selection
absl::Status CheckCandidate(const PlanSelection& asked, int num_rows,
                            const Candidate& candidate, int logits_row,
                            int vocab_size) {
  const auto [row, token, cum_log_prob] = candidate;
  if (row < 0 || row >= num_rows || token < LowestToken(asked) ||
      token >= vocab_size) {
    return Internal("a step answered with token ", token, " after beam ", row,
                    " of ", num_rows);
  }
  if (token < 0) return absl::OkStatus();
  if (std::isnan(cum_log_prob)) {
    return Internal("a step answered with NaN as the sum of token ", token);
  }
  if (RanksByNoise(asked) && std::isinf(cum_log_prob)) {
    return Internal("a step answered with an infinite sum of token ", token,
                    ", which no noise can rank");
  }
  if (MayFollow(asked, logits_row, token)) return absl::OkStatus();
  return Internal("a step answered with token ", token, " after beam ", row,
                  ", which may not follow");
}

// Checks that there is one token for each sample, in the order of samples.
absl::Status CheckDraws(const DrawSelection& draws, int num_rows,
                        std::span<const Candidate> drawn) {
  if (drawn.size() != draws.samples.size()) {
    return Internal("a step drew ", drawn.size(), " tokens for ",
                    draws.samples.size(), " samples");
  }
  if (num_rows == 1) return absl::OkStatus();
  for (size_t i = 0; i < drawn.size(); ++i) {
    if (drawn[i].beam == i) continue;
    return Internal("a step drew token ", i, " from beam ", drawn[i].beam);
  }
  return absl::OkStatus();
}

// Checks that each sample has its accepted drafts and one more token, in the
// order of samples.
absl::Status CheckRuns(const DrawSelection& draws,
                       const SelectionResult& answer) {
  const std::vector<int>& counts = answer.num_tokens;
  if (counts.size() != draws.samples.size()) {
    return Internal("a step verified drafts of ", counts.size(),
                    " samples instead of ", draws.samples.size());
  }
  std::span<const Candidate> left = answer.candidates;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const std::vector<TokenId>& draft = draws.drafts.tokens[rank];
    const int count = counts[rank];
    const int64_t most =
        answer.has_unverified_drafts ? 1 : std::ssize(draft) + 1;
    if (count < 1 || count > std::min(most, std::ssize(left))) {
      return Internal("a step answered with ", count, " tokens for ",
                      draft.size(), " drafts of sample ", rank);
    }
    for (int i = 0; i < count; ++i) {
      const bool is_draft = i + 1 == count || left[i].token == draft[i];
      if (left[i].beam == rank && is_draft) continue;
      return Internal("a step accepted token ", left[i].token, " of beam ",
                      left[i].beam, " for draft ", i, " of sample ", rank);
    }
    left = left.subspan(count);
  }
  if (left.empty()) return absl::OkStatus();
  return Internal("a step answered with ", left.size(), " tokens too many");
}

// Returns the row of logits of each candidate of samples with drafts.
std::vector<int> LogitsRowsOf(const SampleDrafts& drafts,
                              const SelectionResult& answer) {
  std::vector<int> logits_rows;
  int first = 0;
  for (size_t rank = 0; rank < drafts.tokens.size(); ++rank) {
    for (int i = 0; i < answer.num_tokens[rank]; ++i)
      logits_rows.push_back(first + i);
    first += static_cast<int>(drafts.tokens[rank].size()) + 1;
  }
  return logits_rows;
}

// Checks the order: by row in kRows, and best first if candidates rank by
// score.
absl::Status CheckRanks(const PlanSelection& asked,
                        std::span<const Candidate> candidates) {
  const bool by_row = asked.kind() == SelectionKind::kRows;
  const bool by_noise = RanksByNoise(asked);
  const int most = asked.num_candidates();
  int count = 0;  // in total, or in this row
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& next = candidates[i];
    const bool begins =
        i == 0 || (by_row && candidates[i - 1].beam != next.beam);
    count = begins ? 1 : count + 1;
    if (count > most) {
      return Internal("a step answered with more than ", most, " candidates");
    }
    if (i == 0) continue;
    const Candidate& last = candidates[i - 1];
    const bool sorted =
        begins ? last.beam < next.beam
               : by_noise || last.cum_log_prob >= next.cum_log_prob;
    if (!sorted) {
      return Internal("a step answered with candidates out of order, at ", i);
    }
  }
  return absl::OkStatus();
}

// Checks that no candidate occurs twice. Beams must be different sequences:
// WorstCaseEdits (prepared_request.h) relies on beams of a search being on
// different allowed sequences, and callers rely on distinct hypotheses.
//
// A hash table, because this runs on the strand: for the 2,000 candidates of
// 1,000 beams it takes 9 us, sorting takes 120.
absl::Status CheckDistinct(std::span<const Candidate> candidates) {
  constexpr int kFree = -1;
  absl::InlinedVector<int, 64> places(std::bit_ceil(2 * candidates.size() + 1),
                                      kFree);
  const size_t mask = places.size() - 1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto& [beam, token, sum] = candidates[i];
    const uint64_t key = uint64_t{static_cast<uint32_t>(beam)} << 32 |
                         static_cast<uint32_t>(token);
    size_t place = ((key * 0x9e3779b97f4a7c15) >> 40) & mask;
    for (; places[place] != kFree; place = (place + 1) & mask) {
      const Candidate& other = candidates[places[place]];
      if (other.beam != beam || other.token != token) continue;
      return Internal("a step answered twice with token ", token,
                      " after beam ", beam);
    }
    places[place] = static_cast<int>(i);
  }
  return absl::OkStatus();
}

std::vector<TokenId> TokensOf(std::span<const Candidate> candidates) {
  std::vector<TokenId> tokens;
  for (const Candidate& candidate : candidates) {
    tokens.push_back(candidate.token);
  }
  return tokens;
}

// Checks common to all results, with or without verified drafts.
//   logits_rows  row of logits of each candidate; empty: equal to its row
absl::Status CheckEach(const PlanSelection& asked, int num_rows,
                       const SelectionResult& answer,
                       std::span<const int> logits_rows, int vocab_size) {
  const std::span<const Candidate> candidates = answer.candidates;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int logits_row =
        logits_rows.empty() ? candidates[i].beam : logits_rows[i];
    RETURN_IF_ERROR(
        CheckCandidate(asked, num_rows, candidates[i], logits_row, vocab_size));
  }
  const int num_logprobs = asked.params->num_logprobs;
  if (num_logprobs < 0) return absl::OkStatus();
  return CheckLogProbs(answer.logprobs, TokensOf(candidates), num_logprobs,
                       vocab_size);
}

// Checks a step of beams without drafts, or a later step of a result with
// drafts.
absl::Status CheckRanked(const PlanSelection& asked, int num_rows,
                         const SelectionResult& answer, int vocab_size) {
  RETURN_IF_ERROR(CheckEach(asked, num_rows, answer, {}, vocab_size));
  RETURN_IF_ERROR(CheckRanks(asked, answer.candidates));
  return CheckDistinct(answer.candidates);
}

// Checks the steps of a search whose beams feed paths: each selects from the
// beams that the step before makes, which are all on paths.
absl::Status CheckReplayed(const PlanSelection& asked,
                           const SelectionResult& answer, int vocab_size,
                           const DraftTree& tree) {
  if (answer.has_unverified_drafts && !answer.further.empty()) {
    return Internal("a step that verified no drafts answered for ",
                    answer.further.size(), " steps after it");
  }
  std::vector<int> nodes = tree.Roots();
  RETURN_IF_ERROR(CheckRanked(asked, asked.num_rows, answer, vocab_size));
  std::span<const Candidate> candidates = answer.candidates;
  for (size_t i = 0; i < answer.further.size(); ++i) {
    const std::vector<int> surviving =
        SurvivingCandidates(candidates, asked.num_slots, asked.eos_token_ids);
    nodes = tree.Follow(nodes, candidates, surviving);
    if (nodes.empty() || !answer.further[i].further.empty() ||
        answer.further[i].has_unverified_drafts) {
      return Internal("a step answered for ", i + 1,
                      " steps after it that its drafts do not lead to");
    }
    const int num_rows = static_cast<int>(nodes.size());
    RETURN_IF_ERROR(
        CheckRanked(asked, num_rows, answer.further[i], vocab_size));
    candidates = answer.further[i].candidates;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateResult(const PlanSelection& asked,
                            const SelectionResult& answer, int vocab_size,
                            const DraftTree* paths) {
  const DrawSelection* const draws = asked.as_draws();
  const bool verifies_runs = draws != nullptr && !draws->drafts.empty();
  if (verifies_runs) {
    RETURN_IF_ERROR(CheckRuns(*draws, answer));
  } else if (!answer.num_tokens.empty()) {
    return Internal("a step verified drafts that there were not");
  }
  if (asked.has_paths()) {
    return paths != nullptr
               ? CheckReplayed(asked, answer, vocab_size, *paths)
               : CheckReplayed(asked, answer, vocab_size, DraftTree(asked));
  }
  if (!answer.further.empty()) {
    return Internal("a step answered for steps after it without drafts");
  }
  if (draws == nullptr) {
    return CheckRanked(asked, asked.num_rows, answer, vocab_size);
  }
  if (verifies_runs) {
    return CheckEach(asked, asked.num_rows, answer,
                     LogitsRowsOf(draws->drafts, answer), vocab_size);
  }
  RETURN_IF_ERROR(CheckEach(asked, asked.num_rows, answer, {}, vocab_size));
  return CheckDraws(*draws, asked.num_rows, answer.candidates);
}

absl::Status CheckLogProbs(std::span<const TokenLogProb> logprobs,
                           std::span<const TokenId> tokens, int num_best,
                           int vocab_size) {
  if (logprobs.size() != tokens.size()) {
    return Internal("a step answered with ", logprobs.size(),
                    " log-probabilities of ", tokens.size(), " tokens");
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (logprobs[i].token != tokens[i]) {
      return Internal("a step answered with the log-probability of token ",
                      logprobs[i].token, " instead of ", tokens[i]);
    }
    const auto is_token = [&](const TokenScore& best) {
      return best.token >= 0 && best.token < vocab_size;
    };
    if (std::ssize(logprobs[i].best) > num_best ||
        !std::ranges::all_of(logprobs[i].best, is_token)) {
      return Internal("a step answered with best tokens beside token ",
                      tokens[i], " that cannot be");
    }
  }
  return absl::OkStatus();
}

}  // namespace espalier
