// CudaReports: pinned memory into which the device writes the answers of its
// steps, and how they are read. A step's place is used again num_reports steps
// later.
//
// Thread rule: read a report when its step has ended, on any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "exec_request/step_plan.h"
#include "executor/cuda/cuda_step_builder.h"
#include "executor/cuda/cuda_step_memory.h"

namespace espalier {

class CudaReports {
 public:
  // Errors: kResourceExhausted.
  static absl::StatusOr<CudaReports> Create(const CudaStepLimits& limits,
                                            int num_reports);

  // For the device.
  const CudaReportRing& ring() const { return ring_; }
  const CudaLogProbRing& log_prob_ring() const { return log_prob_ring_; }

  int64_t num_bytes() const;

  const CudaReportRing::Header& header(int report) const {
    return headers_[report];
  }
  // Throw std::bad_alloc.
  SelectionResult Read(int report, const CudaStep::Answer& answer) const;
  ScoringResult Read(int report, const CudaStep::Scored& scored) const;

 private:
  void ReadPart(int report, const CudaStep::Answer& answer,
                const CudaAnswerPart& part, SelectionResult* result) const;
  // What is known of asked token number `asked_idx`, and of the best tokens of
  // line number `line` of `place`.
  TokenLogProb ReadLogProb(int report, const CudaLogProbPlace& place,
                           int asked_idx, int line, TokenId token) const;

  PinnedBuffer<CudaReportRing::Header> headers_;
  PinnedBuffer<int> num_candidates_;
  PinnedBuffer<Candidate> candidates_;
  PinnedBuffer<CudaTokenScore> scores_;
  PinnedBuffer<Candidate> best_;
  PinnedBuffer<int> num_found_;
  CudaReportRing ring_;
  CudaLogProbRing log_prob_ring_;
};

}  // namespace espalier
