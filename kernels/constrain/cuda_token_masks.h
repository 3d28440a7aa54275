// Token masks on the device: the masks of the rows of a step, found or made
// before the forward pass, so that selection and sampling read them.
//
//   CudaFindMasks       finds the mask of each row, or lists it as a job
//   CudaMakeTokenMasks  makes the masks of the jobs: walks the bytes of tokens
//                       along the automaton
//   CudaMakePushdownMasks  likewise, where positions have stacks
//
// The states of texts recur, so the masks of states are kept: those for any
// room that is large enough (CudaConstraint::needs). With less room, near
// max_new_tokens, a row has a mask of its own, which each step makes. So do
// rows whose constraint has items (kernels/constrain/cuda_item_masks.h).
//
// Bits equal those of reference::TokenMask.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/constraint_tables.h"
#include "base/cuda.h"
#include "kernels/constrain/cuda_constraint_tables.h"

namespace espalier {

// One mask to make.
struct CudaMaskJob {
  int constraint = 0;  // its tables
  int32_t state = 0;
  // Tokens; none is legal without. kAnyRoom: the mask is kept.
  int32_t room = 0;
  int mask = 0;  // its place; no two jobs have one
};
inline constexpr int32_t kAnyRoom = INT32_MAX;

// The constraint of a row of logits, and its place there: given by the host, or
// kept by the device for a beam (CudaBeamState).
struct CudaMaskRow {
  int constraint = -1;  // none
  int beam = -1;        // its entry by rank; -1: the place is given
  int32_t state = -1;   // if given
  // If given, of texts with stacks: the index of its place among `frames`.
  int frame = -1;
  // Tokens, if the place is given; of a beam, the position from which there is
  // no room, so that room is this less the position that the beam feeds.
  int32_t room = 0;
};

// One mask to make, of texts whose positions have stacks.
struct CudaPushdownJob {
  int constraint = 0;
  int32_t room = 0;
  int mask = 0;
  const PushdownPlace* place = nullptr;  // but for frames above its height
};

// The masks that steps keep, which follow those of rows. When all places are
// taken, a new epoch begins, and all are free.
struct CudaMaskCache {
  uint32_t epoch = 1;
  int num_taken = 0;  // may exceed the number of places
  int num_jobs = 0;   // in the running step
  int num_item_jobs = 0;
  int num_pushdown_jobs = 0;
};

struct CudaMaskInputs {
  // Host values: they size the launches.
  int vocab_size = 0;
  int num_rows = 0;          // rows of logits
  int num_cached_masks = 0;  // places
  int num_places = 0;

  // Device memory.
  const CudaConstraint* constraints = nullptr;
  const CudaMaskRow* rows = nullptr;  // [num_rows]
  // By rank of beams: states. By row: the token that it feeds; by token: its
  // position.
  const int32_t* states = nullptr;
  const int* logits_tokens = nullptr;  // [num_rows]
  const int* positions = nullptr;
  // By rank of beams, of texts with stacks (CudaBeamState::places).
  const PushdownPlace* places = nullptr;  // [2, num_places]
  // Given places: a frame of state, count and height, and those of the stack.
  const PushdownFrame* frames = nullptr;
  CudaMaskCache* cache = nullptr;  // [1]
  // [2 * num_rows]  jobs of texts; those of items are last, in reverse order
  CudaMaskJob* jobs = nullptr;
  CudaPushdownJob* pushdown_jobs = nullptr;  // [num_rows]
};

// Finds the mask of each row with a constraint: the one of its number, or a
// kept one. Lists masks that are not there as jobs. A beam without a state gets
// any mask.
//   first_cached  number of the first kept mask, after those of rows
//   found         receives the number of row r's mask in found[r * stride]
//   also_found    as `found`; or null
// Enqueues on `stream` and returns; never allocates, may be captured.
// REQUIRES: the cache's numbers of jobs are 0.
// Errors: kInvalidArgument if a size is below 1; kInternal if the launch is
// refused.
absl::Status CudaFindMasks(const CudaMaskInputs& inputs, int first_cached,
                           int* found, int* also_found, int stride,
                           cudaStream_t stream);

// Bytes that must follow the last token's in `TokenTexts::bytes` of tables on
// the device: texts are read in words.
inline constexpr int kTokenTextPadding = 20;

// Writes the mask of each job of texts, NumMaskWords(vocab_size) words from
// masks[job.mask * NumMaskWords(vocab_size)] on, and the needs of states whose
// masks are kept. Enqueues on `stream` and returns; never allocates, may be
// captured.
// REQUIRES: all tables have this vocab_size, and texts that begin at multiples
// of 4 bytes and are followed by kTokenTextPadding bytes.
// Errors: as CudaFindMasks.
absl::Status CudaMakeTokenMasks(const CudaMaskInputs& inputs, uint32_t* masks,
                                const CudaDevice& device, cudaStream_t stream);

// Enqueues a barrier (GridDependency::kBarrier) that does nothing else: the
// last kernel of a stream that finds and makes masks. In a graph, kernels that
// read masks early start when the last one of the stream lets them, not when it
// is complete, even if their stream waits for an event of that one.
absl::Status CudaEndMasks(cudaStream_t stream);

// As CudaMakeTokenMasks, of the jobs of texts whose positions have stacks.
// Their masks are not kept: stacks seldom recur.
absl::Status CudaMakePushdownMasks(const CudaMaskInputs& inputs,
                                   uint32_t* masks, const CudaDevice& device,
                                   cudaStream_t stream);

}  // namespace espalier
