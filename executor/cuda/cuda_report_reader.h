// CudaReportReader: what a step on the device has written of its answers, as
// the results that executors give.
//
// The device answers kRows with all candidates of each row. Of these a reader
// leaves what the group's strategy can take, as executors on the host do
// (executor/contenders.h), and log-probabilities of that alone. Where beams
// feed paths it answers with those of each row of logits, from which a reader
// replays the steps of the search (executor/beam_replay.h).
//
// Thread safety: a plain value; the report does not change while it is read.
#pragma once

#include <span>
#include <vector>

#include "exec_request/step_plan.h"
#include "executor/cuda/step/cuda_step.h"
#include "kernels/resident/cuda_resident.h"
#include "kernels/resident/cuda_step_logprobs.h"

namespace espalier {

class CudaReportReader {
 public:
  // Of report number `report` of both rings.
  CudaReportReader(const CudaReportRing& ring,
                   const CudaLogprobRing& logprob_ring, int report);

  CudaReportRing::Header header() const { return header_; }
  // Throw std::bad_alloc.
  SelectionResult Read(const CudaStep::Answer& answer) const;
  PromptLogprobsResult Read(const CudaStep::Scored& scored) const;

 private:
  SelectionResult ReadRuns(const CudaStep::Answer& answer) const;
  SelectionResult ReadPaths(const CudaStep::Answer& answer) const;
  // Those of the part that are of this answer.
  std::vector<Candidate> CandidatesOf(const CudaStep::Answer& answer,
                                      const CudaAnswerPart& part) const;
  // Of a candidate of a part that is one row of logits.
  TokenLogProb LogProbOf(const CudaAnswerPart& part, TokenId token) const;
  // One for each of `candidates`.
  // REQUIRES: these are candidates of the answer, in its order; some may be
  // left out.
  std::vector<TokenLogProb> LogProbsOf(
      const CudaStep::Answer& answer,
      std::span<const Candidate> candidates) const;
  // What is known of asked token number `asked_idx`, and of the best tokens of
  // row `logits_row` of those of `place`.
  TokenLogProb ReadLogProb(const CudaLogprobPlace& place, int asked_idx,
                           int logits_row, TokenId token) const;

  CudaReportRing::Header header_;
  // Of this report.
  const int* num_candidates_;
  const Candidate* candidates_;
  const CudaTokenScore* scores_;
  const Candidate* best_;
  const int* num_found_;
};

}  // namespace espalier
