#include "executor/cuda/cuda_reports.h"

#include <cmath>

#include "base/status.h"

namespace espalier {

absl::StatusOr<CudaReports> CudaReports::Create(const CudaStepLimits& limits,
                                                int num_reports) {
  const size_t count = num_reports;
  CudaReports reports;
  ASSIGN_OR_RETURN(reports.headers_,
                   PinnedBuffer<CudaReportRing::Header>::Create(count));
  ASSIGN_OR_RETURN(reports.num_candidates_,
                   PinnedBuffer<int>::Create(count * limits.max_rows));
  ASSIGN_OR_RETURN(reports.candidates_, PinnedBuffer<Candidate>::Create(
                                            count * limits.max_candidates));
  ASSIGN_OR_RETURN(reports.scores_, PinnedBuffer<CudaTokenScore>::Create(
                                        count * limits.max_asked_tokens()));
  ASSIGN_OR_RETURN(reports.best_, PinnedBuffer<Candidate>::Create(
                                      count * limits.max_best_tokens));
  ASSIGN_OR_RETURN(reports.num_found_,
                   PinnedBuffer<int>::Create(count * limits.max_rows));
  reports.ring_ = {.headers = reports.headers_.data(),
                   .num_candidates = reports.num_candidates_.data(),
                   .candidates = reports.candidates_.data(),
                   .num_reports = num_reports,
                   .max_groups = limits.max_rows,
                   .max_candidates = limits.max_candidates};
  reports.log_prob_ring_ = {.scores = reports.scores_.data(),
                            .best = reports.best_.data(),
                            .num_found = reports.num_found_.data(),
                            .num_reports = num_reports,
                            .max_asked = limits.max_asked_tokens(),
                            .max_best = limits.max_best_tokens,
                            .max_lines = limits.max_rows};
  return reports;
}

int64_t CudaReports::num_bytes() const {
  return static_cast<int64_t>(headers_.size_bytes() +
                              num_candidates_.size_bytes() +
                              candidates_.size_bytes() + scores_.size_bytes() +
                              best_.size_bytes() + num_found_.size_bytes());
}

SelectionResult CudaReports::Read(int report,
                                  const CudaStep::Answer& answer) const {
  SelectionResult result = {.request = answer.request, .error = answer.error};
  for (const CudaAnswerPart& part : answer.parts) {
    ReadPart(report, answer, part, &result);
  }
  return result;
}

void CudaReports::ReadPart(int report, const CudaStep::Answer& answer,
                           const CudaAnswerPart& part,
                           SelectionResult* result) const {
  const int count =
      ring_.num_candidates[report * ring_.max_groups + part.group_idx];
  const Candidate* const first = ring_.candidates +
                                 int64_t{report} * ring_.max_candidates +
                                 part.first_candidate;
  for (int i = 0; i < count; ++i) {
    Candidate candidate = first[i];
    if (!answer.cum_log_probs.empty()) {
      candidate.cum_log_prob += answer.cum_log_probs[part.first_rank];
      if (std::isinf(candidate.cum_log_prob)) continue;  // below float32
    }
    if (answer.has_log_probs) {
      result->logprobs.push_back(ReadLogProb(report, part.log_probs, i,
                                             candidate.beam, candidate.token));
    }
    candidate.beam += part.first_rank;
    result->candidates.push_back(candidate);
  }
}

ScoringResult CudaReports::Read(int report,
                                const CudaStep::Scored& scored) const {
  ScoringResult result = {.request = scored.request, .logprobs = {}};
  for (int i = 0; i < std::ssize(scored.tokens); ++i) {
    result.logprobs.push_back(
        ReadLogProb(report, scored.place, i, i, scored.tokens[i]));
  }
  return result;
}

TokenLogProb CudaReports::ReadLogProb(int report, const CudaLogProbPlace& place,
                                      int asked_idx, int line,
                                      TokenId token) const {
  if (token < 0) return {.token = token, .best = {}};  // there is none
  const CudaTokenScore score =
      scores_[int64_t{report} * log_prob_ring_.max_asked + place.first_asked +
              asked_idx];
  TokenLogProb result = {.token = token,
                         .log_prob = score.log_prob,
                         .rank = score.rank,
                         .best = {}};
  if (place.num_best == 0) return result;
  const int num_found =
      log_prob_ring_.num_found[report * log_prob_ring_.max_lines +
                               place.first_best_group + line];
  const Candidate* const best = log_prob_ring_.best +
                                int64_t{report} * log_prob_ring_.max_best +
                                place.first_best + line * place.num_best;
  for (int i = 0; i < num_found; ++i) {
    result.best.push_back({best[i].token, best[i].cum_log_prob});
  }
  return result;
}

}  // namespace espalier
