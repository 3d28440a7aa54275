// Bound by latency, not by bytes: a few dependent reads of a few kilobytes in
// L2, and the transfer of the report to the host. On an H200, within a graph
// (cuda_bookkeeping_benchmark; half of the beams are forked children, so that
// tables move too in the second column):
//
//   groups x beams   CudaPrepareInputs   and CudaUpdateBeams
//        1 x 5          1.5 us            5.1 us
//       16 x 8          1.6 us            5.4 us
//      128 x 8          1.8 us            6.1 us
//        1 x 5000       2.3 us           51.2 us
#include <climits>
#include <cub/block/block_scan.cuh>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/resident/cuda_resident.h"

namespace espalier {
namespace {

constexpr int kWarpSize = 32;

__device__ int64_t NowNs() {
  int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Called by one thread of a step's first kernel, and of kernels that may be it.
__device__ void StartClock(CudaStepClock* clock) {
  if (clock->started_ns == 0) clock->started_ns = NowNs();
}

// One warp per segment or row, which are short: eight make a block of usual
// size.
constexpr int kWarpsPerBlock = 8;

LaunchConfig WarpEach(int count) {
  const unsigned blocks = (count + kWarpsPerBlock - 1) / kWarpsPerBlock;
  return {.grid = {blocks > 0 ? blocks : 1},
          .block = {kWarpsPerBlock * kWarpSize},
          .dependency = GridDependency::kWritesEarlyRead};
}

__device__ int WarpIndex() {
  return blockIdx.x * kWarpsPerBlock + threadIdx.x / kWarpSize;
}
__device__ int Lane() { return threadIdx.x % kWarpSize; }
__device__ bool IsFirstThread() { return blockIdx.x == 0 && threadIdx.x == 0; }

__global__ void ApplyDelta(const CudaStagedWrite* segments, int num_segments,
                           const int* payload, int* words,
                           CudaStepClock* clock) {
  LaunchDependents();
  GridDependencyWait();
  if (IsFirstThread()) StartClock(clock);
  if (WarpIndex() >= num_segments) return;
  const CudaStagedWrite segment = segments[WarpIndex()];
  for (int i = Lane(); i < segment.count; i += kWarpSize) {
    words[segment.target + i] = payload[segment.source + i];
  }
}

// Copies its source's table to `slot`, and lists the copy of the filled part of
// the tail. The source's own warp may write its tail into its table at the same
// time, but writes the page that is there already.
__device__ void MoveTwin(const CudaBeamState& state,
                         const CudaResidentGroup& group, int slot,
                         int position) {
  const int source = state.sources[slot];
  if (source < 0) return;
  const int num_full_pages = position / state.page_size;
  int* const to = state.tables + int64_t{slot} * state.table_stride;
  const int* const from = state.tables + int64_t{source} * state.table_stride;
  for (int page = group.num_shared_pages + Lane(); page < num_full_pages;
       page += kWarpSize) {
    to[page] = from[page];
  }
  const int num_filled = position % state.page_size;
  if (num_filled == 0 || Lane() != 0) return;
  state.copies[atomicAdd(state.num_copies, 1)] = {
      PageId{from[num_full_pages]}, PageId{state.tails[slot]}, num_filled};
}

// Writes the draw of an entry's sample.
__device__ void WriteSampleInput(const CudaBeamState& state,
                                 const CudaResidentGroup& group,
                                 const CudaSelectGroup& selection, int rank,
                                 int position) {
  state.draws[group.first_draw + rank] = {
      .row = selection.first_row + rank,
      .candidate = selection.first_candidate + rank,
      .beam = rank,
      .sample = state.samples[group.first_slot + rank],
      .position =
          static_cast<uint32_t>(position + 1 - group.num_prompt_tokens)};
}

__device__ void WriteBeamInput(const CudaBeamState& state,
                               const CudaResidentGroup& group, int first_row,
                               int rank, int position) {
  const int entry = group.first_slot + rank;
  const int slot = state.slots[entry];
  const int token = first_row + slot - group.first_slot;
  const int place = position % state.page_size;
  state.page_tokens[int64_t{state.tails[slot]} * state.page_size + place] =
      state.tokens[entry];
  state.batch_tokens[token] = state.tokens[entry];
  state.batch_positions[token] = position;
  state.logits_tokens[first_row + rank] = token;
  state.batch_cum_log_probs[first_row + rank] = state.cum_log_probs[entry];
}

__device__ void WritePaddingInput(const CudaBeamState& state, int row) {
  state.batch_tokens[row] = 0;
  state.batch_positions[row] = 0;
  state.logits_tokens[row] = row;
  state.batch_cum_log_probs[row] = -INFINITY;
}

// One warp per row: for the beam of its rank, and the slot of the same number.
__global__ void BeginStep(CudaBeamState state, int num_rows) {
  LaunchDependents();
  GridDependencyWait();
  if (IsFirstThread()) {
    StartClock(state.clock);
    ++state.clock->num_steps;
  }
  const int row = WarpIndex();
  if (row >= num_rows) return;
  const int group_idx = state.row_groups[row];
  if (group_idx < 0) {
    if (Lane() == 0) WritePaddingInput(state, row);
    return;
  }
  const CudaResidentGroup group = state.groups[group_idx];
  const CudaSelectGroup selection = state.selections[group_idx];
  const int first_row = selection.first_row;
  const int number = row - first_row;  // as a slot, and as a rank
  const int slot = group.first_slot + number;
  const int position = state.positions[group.first_slot];
  MoveTwin(state, group, slot, position);
  if (Lane() != 0) return;
  state
      .tables[int64_t{slot} * state.table_stride + position / state.page_size] =
      state.tails[slot];
  WriteBeamInput(state, group, first_row, number, position);
  if (group.first_draw < 0) return;
  WriteSampleInput(state, group, selection, number, position);
}

// One block per group. 256 threads process a group of 100 beams in one round of
// every loop below. Groups of thousands take tens of rounds, which is short
// against a step of thousands of rows.
constexpr int kAdvanceThreads = 256;
// Groups up to this width keep their scratch in shared memory: 12 KiB.
constexpr int kSharedSlots = 1024;

using Scan = cub::BlockScan<int, kAdvanceThreads>;

// Numbers the i in [0, count) for which `wanted(i)` is true, in order. Calls
// take(i, number) for them, and other(i) for the rest. Stops at `limit` numbers
// and returns how many there are.
template <typename Wanted, typename Take, typename Other>
__device__ int BlockSelectIf(int count, int limit, Scan::TempStorage& storage,
                             const Wanted& wanted, const Take& take,
                             const Other& other) {
  int num_taken = 0;
  for (int first = 0; first < count && num_taken < limit;
       first += kAdvanceThreads) {
    const int i = first + threadIdx.x;
    const int flag = i < count && wanted(i) ? 1 : 0;
    int number;
    int num_flags;
    Scan(storage).ExclusiveSum(flag, number, num_flags);
    __syncthreads();
    number += num_taken;
    if (flag != 0 && number < limit) take(i, number);
    if (flag == 0 && i < count) other(i);
    num_taken += num_flags;
  }
  return num_taken < limit ? num_taken : limit;
}

// The memory of one group, by rank or slot within the group.
struct GroupView {
  __device__ GroupView(const CudaBeamState& state, int group_idx)
      : group(state.groups[group_idx]),
        tokens(state.tokens + group.first_slot),
        cum_log_probs(state.cum_log_probs + group.first_slot),
        slots(state.slots + group.first_slot),
        samples(state.samples + group.first_slot),
        draws(state.draws + group.first_draw),
        sources(state.sources + group.first_slot),
        eos(state.eos_token_ids + group.first_eos) {}

  __device__ bool draws_samples() const { return group.first_draw >= 0; }
  __device__ bool has_constraint() const { return group.has_constraint != 0; }

  __device__ bool IsEos(TokenId token) const {
    int begin = 0;
    int end = group.num_eos;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (eos[middle] == token) return true;
      if (eos[middle] < token) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return false;
  }

  const CudaResidentGroup group;
  int* const tokens;
  float* const cum_log_probs;
  int* const slots;
  uint32_t* const samples;
  const CudaDraw* const draws;  // samples only
  int* const sources;
  const int* const eos;
};

struct AdvanceScratch {
  int* parents;      // by rank: the parent's slot
  int* first_child;  // by slot: its best child's rank
  int* free_slots;   // ascending: slots without a child
};

// Returns a group's number of candidates; for samples, the number of draws.
__device__ int NumCandidates(const GroupView& view, int num_selected) {
  if (!view.draws_samples()) return num_selected;
  int count = 0;
  for (int first = 0; first < view.group.num_draws; first += kAdvanceThreads) {
    const int i = first + threadIdx.x;
    count += __syncthreads_count(i < view.group.num_draws &&
                                 view.draws[i].sample != kNoSample);
  }
  return count;
}

// True if a token may follow a candidate, by the mask of its row. REQUIRES: a
// constraint.
__device__ bool Continues(const CudaBeamState& state, int first_row,
                          const Candidate& candidate) {
  const int mask = state.row_edits[first_row + candidate.beam].mask;
  const uint32_t word = state.continuing[int64_t{mask} * state.num_mask_words +
                                         candidate.token / 32];
  return (word >> (candidate.token % 32) & 1) != 0;
}

// Makes candidates into beams; returns the number of live ones.
//   first_row  of the group's logits
__device__ int TakeBeams(const CudaBeamState& state, const GroupView& view,
                         const Candidate* candidates, int num_candidates,
                         int first_row, const AdvanceScratch& scratch,
                         Scan::TempStorage& storage) {
  const auto lives = [&](int i) {
    const Candidate candidate = candidates[i];
    if (candidate.token < 0) return false;
    return view.has_constraint() ? Continues(state, first_row, candidate)
                                 : !view.IsEos(candidate.token);
  };
  int* const parents = state.parents + view.group.first_slot;
  const auto take = [&](int i, int rank) {
    const Candidate candidate = candidates[i];
    view.tokens[rank] = candidate.token;
    view.cum_log_probs[rank] = candidate.cum_log_prob;
    if (view.draws_samples()) view.samples[rank] = view.draws[i].sample;
    if (view.has_constraint()) {
      parents[rank] = view.group.first_slot + candidate.beam;
    }
    scratch.parents[rank] = view.slots[candidate.beam] - view.group.first_slot;
  };
  const int num_beams = BlockSelectIf(num_candidates, view.group.num_slots,
                                      storage, lives, take, [](int) {});
  const bool lacks = num_candidates >= view.group.max_candidates &&
                     num_beams < view.group.num_slots;
  return lacks ? 0 : num_beams;
}

// AssignSlots in parallel, with the ranks from num_beams on as forked children
// of no beam.
__device__ void MoveBeams(const GroupView& view, int num_beams,
                          const AdvanceScratch& scratch,
                          Scan::TempStorage& storage) {
  const int num_slots = view.group.num_slots;
  constexpr int kNone = INT_MAX;
  for (int slot = threadIdx.x; slot < num_slots; slot += kAdvanceThreads) {
    scratch.first_child[slot] = kNone;
    view.sources[slot] = -1;
  }
  __syncthreads();
  for (int rank = threadIdx.x; rank < num_beams; rank += kAdvanceThreads) {
    atomicMin(&scratch.first_child[scratch.parents[rank]], rank);
  }
  __syncthreads();
  const auto place = [&](int rank, int slot) {
    view.slots[rank] = view.group.first_slot + slot;
  };
  BlockSelectIf(
      num_slots, num_slots, storage,
      [&](int slot) { return scratch.first_child[slot] == kNone; },
      [&](int slot, int number) { scratch.free_slots[number] = slot; },
      [](int) {});
  __syncthreads();
  BlockSelectIf(
      num_slots, num_slots, storage,
      [&](int rank) {
        return rank >= num_beams ||
               scratch.first_child[scratch.parents[rank]] != rank;
      },
      [&](int rank, int number) {
        const int slot = scratch.free_slots[number];
        place(rank, slot);
        if (rank >= num_beams) return;
        view.sources[slot] = view.group.first_slot + scratch.parents[rank];
      },
      [&](int rank) { place(rank, scratch.parents[rank]); });
}

__device__ void ReportGroup(const Candidate* candidates, int num_candidates,
                            int first_candidate, int group_idx, int report,
                            const CudaReportRing& reports) {
  Candidate* const out = reports.candidates +
                         int64_t{report} * reports.max_candidates +
                         first_candidate;
  for (int i = threadIdx.x; i < num_candidates; i += kAdvanceThreads) {
    out[i] = candidates[i];
  }
  if (threadIdx.x != 0) return;
  reports.num_candidates[report * reports.max_groups + group_idx] =
      num_candidates;
}

__device__ void AdvanceGroup(const CudaBeamState& state, const GroupView& view,
                             const Candidate* candidates, int num_candidates,
                             int first_row, AdvanceScratch scratch,
                             Scan::TempStorage& storage) {
  if (view.group.num_slots > kSharedSlots) {
    int* const wide = state.scratch + int64_t{3} * view.group.first_slot;
    scratch = {wide, wide + view.group.num_slots,
               wide + 2 * view.group.num_slots};
  }
  const int num_beams = TakeBeams(state, view, candidates, num_candidates,
                                  first_row, scratch, storage);
  __syncthreads();
  for (int rank = num_beams + threadIdx.x; rank < view.group.num_slots;
       rank += kAdvanceThreads) {
    view.tokens[rank] = 0;
    view.cum_log_probs[rank] = -INFINITY;
    view.samples[rank] = kNoSample;
    if (view.has_constraint()) {
      state.parents[view.group.first_slot + rank] = -1;
    }
  }
  MoveBeams(view, num_beams, scratch, storage);
  if (threadIdx.x == 0 && view.group.num_slots > 0) {
    ++state.positions[view.group.first_slot];
  }
}

// One thread: the jobs of the step are done, and a full cache begins anew.
//   masks  the cache during the step
__device__ void EndMasks(const CudaBeamState& state,
                         const CudaMaskCache& masks) {
  if (masks.num_jobs + masks.num_item_jobs + masks.num_pushdown_jobs == 0) {
    return;
  }
  const bool is_full = masks.num_taken >= state.num_cached_masks;
  // Numbers of steps are below those of resets (CudaStepBuilder).
  *state.masks = {
      .epoch = is_full ? static_cast<uint32_t>(state.clock->num_steps) + 1
                       : masks.epoch,
      .num_taken = is_full ? 0 : masks.num_taken};
}

__global__ void __launch_bounds__(kAdvanceThreads)
    AdvanceGroups(CudaBeamState state, const Candidate* candidates,
                  const int* num_candidates, CudaReportRing reports) {
  __shared__ Scan::TempStorage storage;
  __shared__ int scratch[3 * kSharedSlots];
  LaunchDependents();
  GridDependencyWait();
  const int group_idx = blockIdx.x;
  // Issues all loads at once, even if the group does not exist, to overlap
  // their latencies.
  const int num_groups = *state.num_groups;
  const int first = state.selections[group_idx].first_candidate;
  const int first_row = state.selections[group_idx].first_row;
  const int num_selected = num_candidates[group_idx];
  CudaMaskCache masks;
  if (IsFirstThread() && state.masks != nullptr) masks = *state.masks;
  const GroupView view(state, group_idx);
  const int report =
      static_cast<int>((state.clock->num_steps - 1) % reports.num_reports);
  if (group_idx < num_groups) {
    const int count = NumCandidates(view, num_selected);
    ReportGroup(candidates + first, count, first, group_idx, report, reports);
    AdvanceGroup(state, view, candidates + first, count, first_row,
                 {scratch, scratch + kSharedSlots, scratch + 2 * kSharedSlots},
                 storage);
  }
  if (!IsFirstThread()) return;
  reports.headers[report] = {state.clock->started_ns, NowNs()};
  state.clock->started_ns = 0;
  *state.num_copies = 0;
  if (state.masks != nullptr) EndMasks(state, masks);
}

}  // namespace

absl::Status CudaApplyStagedWrites(const CudaStagedWrite* segments,
                                   int num_segments, const int* payload,
                                   int* words, CudaStepClock* clock,
                                   cudaStream_t stream) {
  return Launch(ApplyDelta, WarpEach(num_segments), stream, segments,
                num_segments, payload, words, clock);
}

absl::Status CudaPrepareInputs(const CudaBeamState& state, int num_rows,
                               cudaStream_t stream) {
  return Launch(BeginStep, WarpEach(num_rows), stream, state, num_rows);
}

absl::Status CudaUpdateBeams(const CudaBeamState& state,
                             const Candidate* candidates,
                             const int* num_candidates,
                             const CudaReportRing& reports, int max_groups,
                             cudaStream_t stream) {
  if (max_groups < 1 || max_groups > reports.max_groups) {
    return InvalidArgument("a step of up to ", max_groups,
                           " groups, reports have room for ",
                           reports.max_groups);
  }
  return Launch(AdvanceGroups,
                {.grid = {static_cast<unsigned>(max_groups)},
                 .block = {kAdvanceThreads},
                 .dependency = GridDependency::kWritesEarlyRead},
                stream, state, candidates, num_candidates, reports);
}

}  // namespace espalier
