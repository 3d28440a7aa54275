// Token masks on the device: the masks of the rows of a step, found or made
// beside the forward pass, so that selection and sampling read them.
//
//   CudaAdvancePlaces      beams with stacks read the tokens that they feed
//   CudaFindMasks          beams without stacks read theirs; finds the mask of
//                          each row, or lists it as a job
//   CudaMakeTokenMasks     makes the masks of the jobs: walks the bytes of
//                          tokens along the automaton
//   CudaMakePushdownMasks  makes those of jobs whose positions have stacks
//
// States of texts recur, and so do those with the same stack. Their masks are
// kept: those for any room that is large enough (CudaConstraint::needs). With
// less room, near max_new_tokens, a row has a mask of its own, which each step
// makes. So do rows whose constraint has items
// (kernels/constrain/cuda_item_masks.h).
//
// A mask has a bit for each legal token, and another one that tells whether a
// further token may follow it. So the update, which beams wait for, need not
// find the states after candidates (CudaUpdateBeams).
//
// Bits equal those of reference::TokenMask and reference::ContinuingMask.
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
  int kept = -1;                         // entry of a kept mask
  const PushdownPlace* place = nullptr;  // but for frames above its height
  int32_t count = 0;                     // in place of that of `place`
};

// The mask that is kept of places with stacks, an entry of a hash table with
// linear probing, and all that it depends on. Counts that are far from any
// limit have one (SimilarCount).
struct CudaKeptPlace {
  // The epoch in which it is valid in the upper half, then the place of the
  // mask in 16 bits, and in 16 one more than the row that takes it in this
  // step.
  unsigned long long entry = 0;
  int32_t need = -1;  // as CudaConstraint::needs
  uint32_t constraint = 0;
  int32_t state = 0;
  int32_t count = 0;
  int32_t height = 0;
  int32_t frames[PushdownPlace::kMaxDepth] = {};  // [height]  states
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

// Masks by number, [num_masks, NumMaskWords(vocab_size)].
struct CudaTokenMasks {
  uint32_t* legal = nullptr;
  uint32_t* continuing = nullptr;  // legal ones that another token may follow
};

struct CudaMaskInputs {
  // Host values: they size the launches.
  int vocab_size = 0;
  int num_rows = 0;          // rows of logits
  int num_cached_masks = 0;  // places, up to 65,535
  int num_kept_places = 0;   // entries; 0: no masks of stacks are kept
  int num_places = 0;

  // Device memory.
  const CudaConstraint* constraints = nullptr;
  const CudaMaskRow* rows = nullptr;  // [num_rows]
  // By row: the token that it feeds; by token: its position.
  const int* logits_tokens = nullptr;  // [num_rows]
  const int* positions = nullptr;
  // By rank of beams, as of CudaBeamState.
  const int* parents = nullptr;
  const TokenId* tokens = nullptr;
  int32_t* states = nullptr;        // [2, num_places]
  PushdownPlace* places = nullptr;  // [2, num_places]  of texts with stacks
  // Given places: a frame of state, count and height, and those of the stack.
  const PushdownFrame* frames = nullptr;
  CudaMaskCache* cache = nullptr;  // [1]
  // [2 * num_rows]  jobs of texts; those of items are last, in reverse order
  CudaMaskJob* jobs = nullptr;
  CudaPushdownJob* pushdown_jobs = nullptr;  // [2 * num_rows]
  CudaKeptPlace* kept_places = nullptr;      // [num_kept_places]  at first 0
};

// Writes the states and places of beams with stacks: those of their parents
// after the token that the beam feeds, which continues there. Enqueues on
// `stream` and returns; never allocates, may be captured.
// Errors: as CudaFindMasks.
absl::Status CudaAdvancePlaces(const CudaMaskInputs& inputs,
                               cudaStream_t stream);

// Writes the state of each beam without a stack after the token that it feeds.
// Finds the mask of each row with a constraint: the one of its number, or a
// kept one. Lists masks that are not there as jobs. A beam without a state gets
// any mask.
//   first_cached  number of the first kept mask, after those of rows
//   found         receives the number of row r's mask in found[r * stride]
//   also_found    as `found`; or null
// Enqueues on `stream` and returns; never allocates, may be captured.
// REQUIRES: the cache's numbers of jobs are 0; after CudaAdvancePlaces, if any
// beam has a stack.
// Errors: kInvalidArgument if a size is below 1; kInternal if the launch is
// refused.
absl::Status CudaFindMasks(const CudaMaskInputs& inputs, int first_cached,
                           int* found, int* also_found, int stride,
                           cudaStream_t stream);

// Bytes that must follow the last token's in `TokenTexts::bytes` of tables on
// the device: texts are read in words.
inline constexpr int kTokenTextPadding = 20;

// Writes the masks of each job of texts, and the needs of states whose masks
// are kept. Enqueues on `stream` and returns; never allocates, may be captured.
// REQUIRES: all tables have this vocab_size, and texts that begin at multiples
// of 4 bytes and are followed by kTokenTextPadding bytes.
// Errors: as CudaFindMasks.
absl::Status CudaMakeTokenMasks(const CudaMaskInputs& inputs,
                                const CudaTokenMasks& masks,
                                const CudaDevice& device, cudaStream_t stream);

// Enqueues a barrier (GridDependency::kBarrier) that does nothing else: the
// last kernel of a stream that finds and makes masks. In a graph, kernels that
// read masks early start when the last one of the stream lets them, not when it
// is complete, even if their stream waits for an event of that one.
absl::Status CudaEndMasks(cudaStream_t stream);

// As CudaMakeTokenMasks, of the jobs of texts whose positions have stacks.
absl::Status CudaMakePushdownMasks(const CudaMaskInputs& inputs,
                                   const CudaTokenMasks& masks,
                                   const CudaDevice& device,
                                   cudaStream_t stream);

}  // namespace espalier
