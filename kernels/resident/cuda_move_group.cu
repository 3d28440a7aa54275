// CudaMoveGroup: moves the device state of a group's slots to other slots.
#include <algorithm>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/resident/cuda_resident.h"

namespace espalier {
namespace {

// The destination of a slot may be the place of another that has not moved yet,
// if the ranges overlap: slot s moves to the place of slot s - distance. Slots
// that are a multiple of `distance` apart make a chain, moved in ascending
// order, and each word of the slots moves independently. A thread moves one
// word of a chain. It loads the words of MovePolicy::kAtOnce slots before it
// writes the first, whose destination precedes all of them.
struct MovePolicy {
  static constexpr int kThreads = 256;
  static constexpr int kMaxBlocks = 4096;
  static constexpr int kAtOnce = 16;
};

// One word of each slot.
struct MovedWord {
  int* words;  // slot 0's
  int64_t stride;
  bool is_slot;  // a slot number, which changes with the move
};

constexpr int kNumSlotWords = 9;  // besides its table and its places
constexpr int kNumPlaceWords = sizeof(PushdownPlace) / sizeof(int);

__host__ __device__ int NumWordsOf(const CudaBeamState& state) {
  return kNumSlotWords + state.table_stride +
         (state.places == nullptr ? 0 : 2 * kNumPlaceWords);
}

__device__ MovedWord WordOfSlot(const CudaBeamState& state, int word) {
  switch (word) {
    case 0:
      return {state.tokens, 1, false};
    case 1:
      return {reinterpret_cast<int*>(state.cum_log_probs), 1, false};
    case 2:
      return {state.slots, 1, true};
    case 3:
      return {reinterpret_cast<int*>(state.samples), 1, false};
    case 4:
      return {state.sources, 1, true};
    case 5:
      return {state.tails, 1, false};
    case 6:
      return {state.parents, 1, true};
    case 7:
      return {state.constraint_states, 1, false};
    case 8:
      return {state.constraint_states + state.num_places, 1, false};
    default:
      break;
  }
  word -= kNumSlotWords;
  if (word < state.table_stride) {
    return {state.tables + word, state.table_stride, false};
  }
  word -= state.table_stride;
  PushdownPlace* const places =
      state.places + (word < kNumPlaceWords ? 0 : state.num_places);
  return {reinterpret_cast<int*>(places) + word % kNumPlaceWords,
          kNumPlaceWords, false};
}

__device__ void MoveChain(const MovedWord& word, int from, int distance,
                          int first, int num_slots) {
  for (int begin = first; begin < num_slots;
       begin += MovePolicy::kAtOnce * distance) {
    int values[MovePolicy::kAtOnce];
#pragma unroll
    for (int i = 0; i < MovePolicy::kAtOnce; ++i) {
      const int64_t slot = int64_t{begin} + int64_t{i} * distance;
      if (slot < num_slots) values[i] = word.words[(from + slot) * word.stride];
    }
#pragma unroll
    for (int i = 0; i < MovePolicy::kAtOnce; ++i) {
      const int64_t slot = int64_t{begin} + int64_t{i} * distance;
      if (slot >= num_slots) break;
      const bool shifts = word.is_slot && values[i] >= 0;
      word.words[(from - distance + slot) * word.stride] =
          shifts ? values[i] - distance : values[i];
    }
  }
}

__global__ void __launch_bounds__(MovePolicy::kThreads)
    MoveGroup(CudaBeamState state, int from, int to, int num_slots) {
  LaunchDependents();
  GridDependencyWait();
  const int distance = from - to;
  const int num_words = NumWordsOf(state);
  const int64_t num_chains = min(distance, num_slots);
  const int64_t num_threads = int64_t{gridDim.x} * MovePolicy::kThreads;
  for (int64_t i = int64_t{blockIdx.x} * MovePolicy::kThreads + threadIdx.x;
       i < num_chains * num_words; i += num_threads) {
    MoveChain(WordOfSlot(state, static_cast<int>(i % num_words)), from,
              distance, static_cast<int>(i / num_words), num_slots);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0)
    state.positions[to] = state.positions[from];
}

}  // namespace

absl::Status CudaMoveGroup(const CudaBeamState& state, int from, int to,
                           int num_slots, cudaStream_t stream) {
  if (to < 0 || to >= from || num_slots < 1) {
    return InvalidArgument("cannot move ", num_slots, " slots from ", from,
                           " to ", to);
  }
  const int64_t num_moved =
      int64_t{std::min(from - to, num_slots)} * NumWordsOf(state);
  const int64_t num_blocks =
      (num_moved + MovePolicy::kThreads - 1) / MovePolicy::kThreads;
  return Launch(MoveGroup,
                {.grid = {static_cast<unsigned>(
                     std::min<int64_t>(num_blocks, MovePolicy::kMaxBlocks))},
                 .block = {MovePolicy::kThreads},
                 .dependency = GridDependency::kWritesEarlyRead},
                stream, state, from, to, num_slots);
}

}  // namespace espalier
