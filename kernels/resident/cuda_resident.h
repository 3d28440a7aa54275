// The beams that stay on the device between steps, and the small kernels that
// update them, as sequence_group.h and page tables do on the host. The next
// step can start before the host has read the last result.
//
//   CudaApplyStagedWrites  writes the host's changes: groups that join or
//                          leave, fresh tail pages, work lists
//   CudaPrepareInputs      forked children take over their parents' tables, and
//                          copies of tails are listed; the batch's tokens and
//                          positions are gathered
//     (tail copies, forward pass, selection)
//   CudaUpdateBeams        the best candidates become beams, forked children
//                          get their slots (kernels/resident/assign_slots.h),
//                          and the host gets its report
//
// A group owns a range of slots from first_slot on. The range has two uses:
//
//   by slot   table, tail page, source:    the place of a beam's pages
//   by rank   token, cum, slot:            first_slot + rank, the beam itself
//
// A group's range of the batch has the same two. Tokens are fed by slot, so
// that a token's table is the same in every step (work lists of attention name
// it). Rows of logits are by rank, because ties are broken by rank:
//
//   beams by rank     "he" in slot 2   "it" in slot 0   inactive, has slot 1
//   tokens by slot    "it"   inactive   "he"
//   rows by rank      for token 2, for token 0, for token 1
//
// A slot without a beam keeps a table and a private tail page. Other slots may
// write the pages of its table; its output is ignored. A rank without a beam
// feeds token 0 with a cum of -inf. So a group always has num_slots rows, and a
// batch keeps its shape when beams die.
//
// A group of samples is kept the same way: a rank is a living sample, in
// ascending order, with its number in the request. CudaPrepareInputs writes its
// next draw (kernels/sample/cuda_sample.h), and the sampled tokens are the
// group's candidates. Ranks without a sample have no draw.
//
// All memory is device memory unless it says otherwise. Nothing here allocates
// or waits; all but CudaApplyStagedWrites may be captured.
#pragma once

#include <cuda_runtime_api.h>

#include <climits>
#include <cstdint>

#include "absl/status/status.h"
#include "base/page_copy.h"
#include "kernels/constrain/cuda_token_masks.h"
#include "kernels/logits/cuda_row_edits.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/select/cuda_select.h"
#include "kernels/select/select.h"

namespace espalier {

// One group of the batch.
struct CudaResidentGroup {
  int first_slot = 0;
  int num_slots = 1;
  // Number of pages at the front of every slot's table that all beams share for
  // the group's life; moves do not change them.
  int num_shared_pages = 0;
  int first_eos = 0;  // its EOS ids in `eos_token_ids`
  int num_eos = 0;
  // Samples only: its draws are draws[first_draw, first_draw + num_draws), the
  // i-th for candidate first_candidate + i. -1: beams.
  int first_draw = -1;
  int num_draws = 0;
  int num_prompt_tokens = 0;  // samples only: later tokens were generated
  // 1: with a constraint, whose masks then say what continues in place of EOS
  // ids.
  int has_constraint = 0;
  // Beams only: as many candidates may lack some (BeamSelection::may_lack).
  int max_candidates = INT_MAX;
};

// Value of CudaDraw::sample without a draw.
inline constexpr uint32_t kNoSample = ~uint32_t{0};

// Counts steps, and times them on the device's clock.
struct CudaStepClock {
  int64_t started_ns = 0;  // start of the running step; 0: not yet
  int64_t num_steps = 0;   // steps begun
};

// The state and the batch. A batch's rows are those of its groups, without
// gaps, in the order of `selections` (first_row, num_rows), and padding.
struct CudaBeamState {
  // By rank: a group's entries are at [first_slot, first_slot + num_slots).
  int* tokens = nullptr;
  float* cum_log_probs = nullptr;  // nats; -inf: no beam
  int* slots = nullptr;
  uint32_t* samples = nullptr;  // index in the request; kNoSample: none
  // By rank, with a constraint: the entry of the beam's parent in the step
  // before; -1: no beam.
  int* parents = nullptr;
  // By rank, with a constraint: states of beams, and their places with a stack.
  // CudaAdvanceStates writes the first ones where the position that a group
  // feeds is even, else the second, and reads the others, which are those of
  // the parents.
  int32_t* constraint_states = nullptr;  // [2, num_places]  -1: no beam
  PushdownPlace* places = nullptr;       // [2, num_places]
  // By slot.
  int* sources = nullptr;  // slot to take over before the next step; -1
  int* tails = nullptr;    // page to write into
  int* tables = nullptr;   // [slots + more, table_stride] page ids
  // By first slot of a group: the position its rows feed next.
  int* positions = nullptr;
  // The token at each place of each page, [pages, page_size]: the histories of
  // beams, stored like their keys and values.
  int* page_tokens = nullptr;

  // The batch that the host writes.
  const int* num_groups = nullptr;              // [1]
  const CudaResidentGroup* groups = nullptr;    // [num_groups]
  const CudaSelectGroup* selections = nullptr;  // [num_groups]
  const int* row_groups = nullptr;              // by row; -1: padding
  const int* eos_token_ids = nullptr;           // ascending within a group

  // The batch that CudaPrepareInputs writes.
  int* batch_tokens = nullptr;           // by slot
  int* batch_positions = nullptr;        // by slot
  int* logits_tokens = nullptr;          // by rank: token of the row
  float* batch_cum_log_probs = nullptr;  // by rank
  // A group's draws, one for each rank. The host writes the draws of groups
  // that have no rows below num_rows; entries with a draw come first.
  CudaDraw* draws = nullptr;
  // Tail copies. The host may put some in front before a step.
  PageCopy* copies = nullptr;
  int* num_copies = nullptr;  // [1]

  CudaStepClock* clock = nullptr;  // [1]
  int* scratch = nullptr;          // [3 * slots]  for wide groups
  CudaMaskCache* masks = nullptr;  // [1]  null: no step has masks
  // By row of logits: the mask of the row, among `continuing` ones
  // (CudaTokenMasks). Of rows with a constraint.
  const CudaRowEdits* row_edits = nullptr;
  const uint32_t* continuing = nullptr;

  // Values.
  int num_mask_words = 0;
  int num_cached_masks = 0;
  int num_places = 0;
  int table_stride = 0;
  int page_size = 1;
};

// The results of steps for the host: a ring of reports in pinned memory. Report
// n % num_reports is that of step n, counted from 0.
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
  int max_candidates = 1;  // over all groups
};

// payload[source, source + count) goes to words[target, target + count).
struct CudaStagedWrite {
  int target = 0;
  int source = 0;
  int count = 0;  // short ones spread over more of the device
};

// Writes the host's changes, in 4-byte words, and starts the step's clock.
// Segments and payload are in device or pinned host memory. No word is the
// target of two segments.
absl::Status CudaApplyStagedWrites(const CudaStagedWrite* segments,
                                   int num_segments, const int* payload,
                                   int* words, CudaStepClock* clock,
                                   cudaStream_t stream);

// Moves the state of slots and ranks [from, from + num_slots) to [to, to +
// num_slots), which no other group uses. The ranges may overlap: then it moves
// as many slots at once as the distance, in rounds.
// Errors: kInvalidArgument unless 0 <= to < from and num_slots >= 1.
absl::Status CudaMoveGroup(const CudaBeamState& state, int from, int to,
                           int num_slots, cudaStream_t stream);

// Runs before the forward pass, for rows [0, num_rows) of the batch. Moves
// tables and lists the tail copies that they need; writes each slot's tail into
// its table; writes its part of the batch, and the token that each beam feeds
// into `page_tokens`; starts the step's clock unless it runs. The caller makes
// the tail copies next (CudaCacheEngine::CopyPages), of tokens too.
// REQUIRES: no group has only some of its rows below num_rows.
absl::Status CudaPrepareInputs(const CudaBeamState& state, int num_rows,
                               cudaStream_t stream);

// Runs after selection. Of each group's candidates, best first, the first
// num_slots whose token is no EOS id become its beams by rank; with a
// constraint, those after which a token may follow, by the masks of their rows,
// or none if the candidates lack beams (LacksBeams,
// exec_request/surviving_candidates.h). AssignSlots
// chooses their slots, and ranks without a beam get the remaining slots,
// ascending. Positions grow by one; the candidates are copied to the report.
// The candidates of samples are their sampled tokens, one per draw; a sample
// without a token is dropped. Jobs of masks are done then.
//   candidates      a group's at its selection's first_candidate
//   num_candidates  [max_groups]  not read for groups of samples
// `max_groups` >= 1 is a bound of *num_groups.
absl::Status CudaUpdateBeams(const CudaBeamState& state,
                             const Candidate* candidates,
                             const int* num_candidates,
                             const CudaReportRing& reports, int max_groups,
                             cudaStream_t stream);

}  // namespace espalier
