// CudaReports: a ring of num_reports reports in pinned memory, into which the
// device writes the results of its steps.
//
// Thread safety: read a report when its step has ended, on any thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/cuda_pinned_memory.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/cuda_report_reader.h"

namespace espalier {

class CudaReports {
 public:
  // Errors: kResourceExhausted.
  static absl::StatusOr<CudaReports> Create(const CudaStepLimits& limits,
                                            int num_reports);

  // For the device.
  const CudaReportRing& ring() const { return ring_; }
  const CudaLogprobRing& logprob_ring() const { return logprob_ring_; }

  int64_t num_bytes() const;

  CudaReportReader reader(int report) const {
    return CudaReportReader(ring_, logprob_ring_, report);
  }

 private:
  PinnedBuffer<CudaReportRing::Header> headers_;
  PinnedBuffer<int> num_candidates_;
  PinnedBuffer<Candidate> candidates_;
  PinnedBuffer<CudaTokenScore> scores_;
  PinnedBuffer<Candidate> best_;
  PinnedBuffer<int> num_found_;
  CudaReportRing ring_;
  CudaLogprobRing logprob_ring_;
};

}  // namespace espalier
