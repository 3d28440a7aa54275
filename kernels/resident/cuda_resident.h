// The beams that live on the device between steps, and the small kernels that
// keep them: what beam_group.h and page tables do on the host, so that the next
// step can start before the host has read the last one's answer.
//
//   CudaApplyStagedWrites  what the host changes: groups that join or leave,
//                          fresh tail pages, work lists
//   CudaPrepareInputs      forked children take over their parents' tables and
//                          tails; the batch's tokens and positions are gathered
//   CudaCopyBeamTails      copies what these tails are filled with
//     (forward pass, selection)
//   CudaUpdateBeams        the best candidates become beams, forked children
//                          get their slots (kernels/resident/assign_slots.h),
//                          and the host gets its report
//
// A group owns a range of slots, first_slot and on. The range has two uses:
//
//   by slot   table, tail page, source:    where a beam's pages are
//   by rank   token, cum, slot:            first_slot + rank, the beam itself
//
// So has a group's range of the batch. Its tokens are fed by slot, so that a
// token's table is the same in every step (work lists of attention name it);
// its rows of logits are by rank, as ties are decided:
//
//   beams by rank     "he" in slot 2   "it" in slot 0   none, left with slot 1
//   tokens by slot    "it"   none   "he"
//   rows by rank      of token 2, of token 0, of token 1
//
// A slot without a beam keeps a table (other slots may write its pages; what
// is read there is ignored) and a tail page of its own, and a rank without a
// beam feeds token 0 with a cum of -inf: a group always has num_slots rows, and
// a batch keeps its shape when beams die.
//
// A group of samples is kept the same way: a rank is a living sample, in
// ascending order, with its number in the request. CudaPrepareInputs
// writes what it draws next (kernels/sample/cuda_sample.h), and the tokens
// drawn are the group's candidates. Ranks without a sample draw nothing.
//
// All memory is device memory unless it says otherwise. Nothing here allocates
// or waits; all but CudaApplyStagedWrites may be captured.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/page_copy.h"
#include "kernels/kv_cache/cuda_kv_cache.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/select/cuda_select.h"
#include "kernels/select/select.h"

namespace espalier {

// One group of the batch.
struct CudaResidentGroup {
  int first_slot = 0;
  int num_slots = 1;
  // Pages at the front of every slot's table that all beams share for the
  // group's life; moves leave them alone.
  int num_shared_pages = 0;
  int first_eos = 0;  // its EOS ids in `eos_token_ids`
  int num_eos = 0;
  // Of samples: what they draw is draws[first_draw, first_draw + num_draws),
  // the i-th for candidate first_candidate + i. -1: not of samples.
  int first_draw = -1;
  int num_draws = 0;
  int num_prompt_tokens = 0;  // of samples: what comes after was generated
};

// Stands in CudaDraw::sample where there is no draw.
inline constexpr uint32_t kNoSample = ~uint32_t{0};

// Counts steps, and times them on the device's clock.
struct CudaStepClock {
  int64_t started_ns = 0;  // of the step that runs; 0: not yet
  int64_t num_steps = 0;   // begun
};

// The state and the batch. A batch's rows are those of its groups, without
// gaps, as `selections` has them (first_row, num_rows), and padding.
struct CudaBeamState {
  // By rank: a group's are at [first_slot, first_slot + num_slots).
  int* tokens = nullptr;
  float* cum_log_probs = nullptr;  // nats; -inf: no beam
  int* slots = nullptr;
  uint32_t* samples = nullptr;  // of the request; kNoSample: none
  // By slot.
  int* sources = nullptr;  // the slot it takes over before the next step; -1
  int* tails = nullptr;    // the page it writes into
  int* tables = nullptr;   // [slots + more, table_stride] page ids
  // By first slot of a group: the position its rows feed next.
  int* positions = nullptr;
  // The token at each place of each page, [pages, page_size]: the histories of
  // beams, which lie where their keys and values do.
  int* page_tokens = nullptr;

  // The batch, as the host writes it.
  const int* num_groups = nullptr;              // [1]
  const CudaResidentGroup* groups = nullptr;    // [num_groups]
  const CudaSelectGroup* selections = nullptr;  // [num_groups]
  const int* row_groups = nullptr;              // by row; -1: padding
  const int* eos_token_ids = nullptr;           // ascending within a group

  // The batch, as CudaPrepareInputs writes it.
  int* batch_tokens = nullptr;           // by slot
  int* batch_positions = nullptr;        // by slot
  int* logits_tokens = nullptr;          // by rank: which token's logits
  float* batch_cum_log_probs = nullptr;  // by rank
  // A group's draws, one for each rank. The host writes the draws of groups
  // that have no rows below num_rows; draws come before entries without one.
  CudaDraw* draws = nullptr;
  // Tail copies. The host may put some in front before a step.
  PageCopy* copies = nullptr;
  int* num_copies = nullptr;  // [1]

  CudaStepClock* clock = nullptr;  // [1]
  int* scratch = nullptr;          // [3 * slots]  for wide groups

  // Values.
  int table_stride = 0;
  int page_size = 1;
};

// What the host learns of a step: a ring of reports in pinned memory. Report
// n % num_reports is that of the n-th step, counted from 0.
struct CudaReportRing {
  struct Header {
    int64_t started_ns = 0;
    int64_t ended_ns = 0;
  };
  Header* headers = nullptr;        // [num_reports]
  int* num_candidates = nullptr;    // [num_reports, max_groups]
  Candidate* candidates = nullptr;  // [num_reports, max_candidates]
  int num_reports = 1;
  int max_groups = 1;
  int max_candidates = 1;  // of all groups together
};

// payload[source, source + count) goes to words[target, target + count).
struct CudaStagedWrite {
  int target = 0;
  int source = 0;
  int count = 0;  // short ones spread over more of the device
};

// Writes what the host changed, in 4-byte words, and starts the step's clock.
// Segments and payload are in device or pinned host memory. No word is the
// target of two segments.
absl::Status CudaApplyStagedWrites(const CudaStagedWrite* segments,
                                   int num_segments, const int* payload,
                                   int* words, CudaStepClock* clock,
                                   cudaStream_t stream);

// Moves the state of slots and ranks [from, from + num_slots) to [to, to +
// num_slots), which no other group uses; the ranges may overlap. All slots at
// once if they do not; else as many as the distance, round after round. Errors:
// kInvalidArgument unless 0 <= to < from and num_slots >= 1.
absl::Status CudaMoveGroup(const CudaBeamState& state, int from, int to,
                           int num_slots, cudaStream_t stream);

// Before the forward pass, for rows [0, num_rows) of the batch: first moves
// tables and lists the tail copies these need, then writes each slot's tail
// into its table, then fills what is its to write of the batch, and writes down
// in `page_tokens` what each beam feeds; starts the step's clock if nothing
// has. Rows of groups of which only some are below num_rows are not allowed.
absl::Status CudaPrepareInputs(const CudaBeamState& state, int num_rows,
                               cudaStream_t stream);

// Then: all tail copies of the step, as CudaCopyTails makes them
// (kernels/kv_cache/cuda_copy_tails.h), of keys, values and tokens.
// `max_copies` bounds *state.num_copies. REQUIRES: the cache's pages are the
// state's. Errors: as CudaCopyTails.
absl::Status CudaCopyBeamTails(const CudaBeamState& state, int max_copies,
                               const CudaKvCache& cache,
                               const CudaDevice& device, cudaStream_t stream);

// After selection: of each group's candidates, best first, the first num_slots
// whose token is no EOS id become its beams by rank; AssignSlots gives their
// slots, and ranks without a beam get the slots that are left, ascending.
// Positions grow by one; the candidates go into the report. Of samples these
// are what was drawn, one for each draw that there is; one without a
// token goes nowhere.
//   candidates      a group's at its selection's first_candidate
//   num_candidates  [max_groups]  not read for groups of samples
// `max_groups` >= 1 is a bound of *num_groups.
absl::Status CudaUpdateBeams(const CudaBeamState& state,
                             const Candidate* candidates,
                             const int* num_candidates,
                             const CudaReportRing& reports, int max_groups,
                             cudaStream_t stream);

}  // namespace espalier
