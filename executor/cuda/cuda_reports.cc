#include "executor/cuda/cuda_reports.h"

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
  reports.logprob_ring_ = {.scores = reports.scores_.data(),
                           .best = reports.best_.data(),
                           .num_found = reports.num_found_.data(),
                           .num_reports = num_reports,
                           .max_asked = limits.max_asked_tokens(),
                           .max_best = limits.max_best_tokens,
                           .max_logits_rows = limits.max_rows};
  return reports;
}

int64_t CudaReports::num_bytes() const {
  return static_cast<int64_t>(headers_.size_bytes() +
                              num_candidates_.size_bytes() +
                              candidates_.size_bytes() + scores_.size_bytes() +
                              best_.size_bytes() + num_found_.size_bytes());
}

}  // namespace espalier
