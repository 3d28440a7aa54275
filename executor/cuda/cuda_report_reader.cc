#include "executor/cuda/cuda_report_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "executor/beam_replay.h"
#include "executor/candidate_filter.h"

namespace espalier {
namespace {

// Returns the tokens of drafts; pending ones have been sampled by now.
std::vector<std::vector<TokenId>> DraftsOf(const SampleDrafts& of) {
  std::vector<std::vector<TokenId>> drafts(of.tokens.size());
  for (size_t row = 0; row < drafts.size(); ++row) {
    const PendingDraft& pending = of.pending[row];
    drafts[row] = pending.empty() ? of.tokens[row] : pending.Tokens();
  }
  return drafts;
}

}  // namespace

CudaReportReader::CudaReportReader(const CudaReportRing& ring,
                                   const CudaLogprobRing& logprob_ring,
                                   int report)
    : header_(ring.headers[report]),
      num_candidates_(ring.num_candidates + int64_t{report} * ring.max_groups),
      candidates_(ring.candidates + int64_t{report} * ring.max_candidates),
      scores_(logprob_ring.scores + int64_t{report} * logprob_ring.max_asked),
      best_(logprob_ring.best + int64_t{report} * logprob_ring.max_best),
      num_found_(logprob_ring.num_found +
                 int64_t{report} * logprob_ring.max_logits_rows) {}

SelectionResult CudaReportReader::Read(const CudaStep::Answer& answer) const {
  if (answer.runs != nullptr) return ReadRuns(answer);
  if (answer.paths != nullptr) return ReadPaths(answer);
  SelectionResult result = {
      .request = answer.request,
      .has_unverified_drafts = answer.has_unverified_drafts,
      .error = answer.error};
  if (answer.rows != nullptr) {
    CandidateFilter contenders(*answer.rows);
    for (const CudaAnswerPart& row : answer.parts) {
      contenders.Add(row.first_rank, CandidatesOf(answer, row));
    }
    const std::vector<Candidate> best = contenders.Take();
    result.candidates.assign(best.begin(), best.end());
  } else if (!answer.parts.empty()) {
    const std::vector<Candidate> best =
        CandidatesOf(answer, answer.parts.front());
    result.candidates.assign(best.begin(), best.end());
  }
  if (answer.has_log_probs) {
    result.logprobs = LogProbsOf(answer, result.candidates);
  }
  return result;
}

SelectionResult CudaReportReader::ReadRuns(
    const CudaStep::Answer& answer) const {
  const std::vector<Candidate> drawn =
      CandidatesOf(answer, answer.parts.front());
  std::vector<TokenLogProb> log_probs;
  if (answer.has_log_probs) log_probs = LogProbsOf(answer, drawn);
  const SampleDrafts& drafts = answer.runs->as_draws()->drafts;
  if (drafts.pending.empty()) {
    return MergeSelectionRows(*answer.runs, answer.logits_rows, drawn,
                              log_probs);
  }
  return MergeSelectionRows(*answer.runs, DraftsOf(drafts), answer.logits_rows,
                            drawn, log_probs);
}

// Sums in the report are log-probabilities of the tokens alone.
SelectionResult CudaReportReader::ReadPaths(
    const CudaStep::Answer& answer) const {
  const PlanSelection& selection = *answer.paths;
  SelectionResult result = {.request = answer.request, .error = answer.error};
  BeamReplay replay(&selection);
  const DraftTree& tree = replay.tree();
  for (int node = 0; node < tree.num_nodes(); ++node) {
    std::vector<TokenScore> best;
    for (const Candidate& candidate :
         CandidatesOf(answer, answer.parts[tree.logits_row(node)])) {
      best.push_back({candidate.token, candidate.cum_log_prob});
    }
    replay.SetBest(node, std::move(best));
  }
  replay.Take(&result);
  if (!answer.has_log_probs) return result;
  ForEachReplayedStep(selection, tree, &result,
                      [&](SelectionResult* step, std::span<const int> nodes) {
                        for (const Candidate& candidate : step->candidates) {
                          const int logits_row =
                              tree.logits_row(nodes[candidate.beam]);
                          step->logprobs.push_back(LogProbOf(
                              answer.parts[logits_row], candidate.token));
                        }
                      });
  return result;
}

TokenLogProb CudaReportReader::LogProbOf(const CudaAnswerPart& part,
                                         TokenId token) const {
  const Candidate* const first = candidates_ + part.first_candidate;
  const Candidate* const end = first + num_candidates_[part.group_idx];
  const Candidate* const found = std::find_if(
      first, end,
      [token](const Candidate& candidate) { return candidate.token == token; });
  CHECK(found != end) << "token " << token << " is not of the report";
  return ReadLogProb(part.log_probs, static_cast<int>(found - first), 0, token);
}

std::vector<Candidate> CudaReportReader::CandidatesOf(
    const CudaStep::Answer& answer, const CudaAnswerPart& part) const {
  const PlanSelection* const rows = answer.rows;
  // Gumbel top-k reports scores without the sum of the row's beam.
  const bool adds = rows != nullptr && rows->as_rows()->gumbel_top_k;
  const std::span all(candidates_ + part.first_candidate,
                      num_candidates_[part.group_idx]);
  std::vector<Candidate> candidates;
  candidates.reserve(all.size());
  for (Candidate candidate : all) {
    if (adds) {
      candidate.cum_log_prob += rows->cum_log_probs[part.first_rank];
      if (std::isinf(candidate.cum_log_prob)) continue;  // below float32
    }
    candidate.beam += part.first_rank;
    candidates.push_back(candidate);
  }
  return candidates;
}

std::vector<TokenLogProb> CudaReportReader::LogProbsOf(
    const CudaStep::Answer& answer,
    std::span<const Candidate> candidates) const {
  std::vector<TokenLogProb> log_probs;
  log_probs.reserve(candidates.size());
  for (const CudaAnswerPart& part : answer.parts) {
    const int count = num_candidates_[part.group_idx];
    for (int i = 0; i < count && log_probs.size() < candidates.size(); ++i) {
      const auto& [logits_row, token, sum] =
          candidates_[part.first_candidate + i];
      const Candidate& next = candidates[log_probs.size()];
      if (next.beam != part.first_rank + logits_row || next.token != token)
        continue;
      log_probs.push_back(ReadLogProb(part.log_probs, i, logits_row, token));
    }
  }
  CHECK_EQ(log_probs.size(), candidates.size())
      << "candidates are not those of the report, in its order";
  return log_probs;
}

PromptLogprobsResult CudaReportReader::Read(
    const CudaStep::Scored& scored) const {
  PromptLogprobsResult result = {.request = scored.request, .logprobs = {}};
  for (int i = 0; i < std::ssize(scored.tokens); ++i) {
    result.logprobs.push_back(
        ReadLogProb(scored.place, i, i, scored.tokens[i]));
  }
  return result;
}

TokenLogProb CudaReportReader::ReadLogProb(const CudaLogprobPlace& place,
                                           int asked_idx, int logits_row,
                                           TokenId token) const {
  if (token < 0) return {.token = token, .best = {}};  // there is none
  const CudaTokenScore score = scores_[place.first_asked + asked_idx];
  TokenLogProb result = {.token = token,
                         .log_prob = score.log_prob,
                         .rank = score.rank,
                         .best = {}};
  if (place.num_best == 0) return result;
  const int num_found = num_found_[place.first_best_group + logits_row];
  const Candidate* const best =
      best_ + place.first_best + logits_row * place.num_best;
  for (int i = 0; i < num_found; ++i) {
    result.best.push_back({best[i].token, best[i].cum_log_prob});
  }
  return result;
}

}  // namespace espalier
