// CudaReportReader: converts the report of a step on the device to results.
//
// For kRows the device reports all candidates of each row. The reader drops the
// candidates that the group's strategy cannot choose, as executors on the host
// do (executor/candidate_filter.h), with their log-probabilities. For beams
// with draft paths the device reports the candidates of each row of logits,
// from which the reader replays the steps of the search
// (executor/beam_replay.h).
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
  // Reads report number `report` of both rings.
  CudaReportReader(const CudaReportRing& ring,
                   const CudaLogprobRing& logprob_ring, int report);

  CudaReportRing::Header header() const { return header_; }
  // Return the result; throw std::bad_alloc if memory runs out.
  SelectionResult Read(const CudaStep::Answer& answer) const;
  PromptLogprobsResult Read(const CudaStep::Scored& scored) const;

 private:
  SelectionResult ReadRuns(const CudaStep::Answer& answer) const;
  SelectionResult ReadPaths(const CudaStep::Answer& answer) const;
  // Returns the part's candidates, with ranks of the group. Gumbel top-k
  // reports them without the beams' sums; then these are added.
  std::vector<Candidate> CandidatesOf(const CudaStep::Answer& answer,
                                      const CudaAnswerPart& part) const;
  // Returns the log-probabilities of a candidate.
  // REQUIRES: the part is one row of logits.
  TokenLogProb LogProbOf(const CudaAnswerPart& part, TokenId token) const;
  // Returns the log-probabilities of each of `candidates`.
  // REQUIRES: `candidates` is a subsequence of the reported candidates.
  std::vector<TokenLogProb> LogProbsOf(
      const CudaStep::Answer& answer,
      std::span<const Candidate> candidates) const;
  // Returns the result of query number `asked_idx`, with the best tokens of row
  // `logits_row` of `place`.
  TokenLogProb ReadLogProb(const CudaLogprobPlace& place, int asked_idx,
                           int logits_row, TokenId token) const;

  CudaReportRing::Header header_;
  // Arrays of this report.
  const int* num_candidates_;
  const Candidate* candidates_;
  const CudaTokenScore* scores_;
  const Candidate* best_;
  const int* num_found_;
};

}  // namespace espalier
