// One block per row. It marks the tokens that the history edits in bitmaps of
// the vocabulary, in shared memory. Then each thread writes the entries of its
// words; their place in the sorted list is the number of marked tokens below.
// Counts, if the params use any, are added up in the list itself.
//
// Bound by latency and by the instructions that a block runs for each token,
// not by bytes. On an H200, within a graph, histories cold
// (cuda_history_benchmark; a repetition penalty, and n-grams of three tokens):
//
//   rows x tokens   of a vocabulary of   us
//      4 x 200            32,000          3.6
//     64 x 200            32,000          4.7
//     64 x 200           128,256          6.5
//     64 x 2,000         128,256         12.6
//    512 x 200            32,000         17.4
//    512 x 2,000         128,256         56.7
//      4 x 16,000        128,256         83.8
//
// Blocks of 512 threads are faster where rows are many and histories short
// (512 x 200: 10.2 us), and take up to twice as long elsewhere.
#include <cub/block/block_scan.cuh>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/resident/cuda_history_edits.h"
#include "kernels/resident/cuda_row_history.cuh"

namespace espalier {
namespace {

struct EditsPolicy {
  // A history of a thousand tokens in one round: there are few rows for the
  // device, and each round takes a memory latency.
  static constexpr int kThreads = 1024;
  // Tokens of the vocabulary that are processed together, three bits each: 48
  // KiB of shared memory.
  static constexpr int kWindow = 1 << 17;
  static constexpr int kWords = kWindow / 32;
  static constexpr int kBitmapBytes = 3 * kWords * sizeof(uint32_t);
};
constexpr int kThreads = EditsPolicy::kThreads;
constexpr int kWindow = EditsPolicy::kWindow;

using Scan = cub::BlockScan<int, kThreads>;

// True if the n - 1 tokens before place `i` are also the last tokens.
__device__ bool MatchesLastNgram(const RowHistory& history, int i, int n) {
  if (i < n - 1) return false;
  // Compares from the end, where most places already differ.
  for (int back = 1; back < n; ++back) {
    if (history[i - back] != history[history.size() - back]) return false;
  }
  return true;
}

// True if entry `last` is the last token of a bad word and the history ends in
// the tokens before it.
__device__ bool CompletesBadWord(const RowHistory& history,
                                 const CudaEditParams& params,
                                 const TokenEdit* edits, int last) {
  if (!edits[last].banned) return false;
  for (int back = 1;; ++back) {
    const int entry = last - back;
    if (entry < params.words_begin || edits[entry].banned) return true;
    if (back > history.size()) return false;
    if (edits[entry].token != history[history.size() - back]) return false;
  }
}

__device__ bool Counts(const CudaEditParams& params) {
  return params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f;
}

// All threads: calls visit(token, is penalised, is banned) for all tokens that
// the history edits.
template <typename Visit>
__device__ void ForEachHistoryEdit(const RowHistory& history,
                                   const CudaEditParams& params,
                                   const TokenEdit* edits, const Visit& visit) {
  const int n = params.no_repeat_ngram_size;
  const int first_penalised = params.repetition_penalty != 1.0f ? 0
                              : Counts(params) ? params.num_prompt_tokens
                                               : history.size();
  for (int i = (n > 0 ? 0 : first_penalised) + threadIdx.x; i < history.size();
       i += kThreads) {
    const bool penalised = i >= first_penalised;
    const bool banned = n > 0 && MatchesLastNgram(history, i, n);
    if (penalised || banned) visit(history[i], penalised, banned);
  }
  for (int i = params.words_begin + threadIdx.x; i < params.words_end;
       i += kThreads) {
    if (CompletesBadWord(history, params, edits, i))
      visit(edits[i].token, false, true);
  }
}

// The tokens [first, first + size) of the vocabulary, bitmaps of them in shared
// memory, [kWords] each.
struct Window {
  __device__ bool Holds(int token) const {
    return token >= first && token < first + size;
  }
  __device__ void Mark(uint32_t* bitmap, int token) const {
    const int at = token - first;
    atomicOr(&bitmap[at / 32], 1u << at % 32);
  }
  __device__ bool Has(const uint32_t* bitmap, int token) const {
    const int at = token - first;
    return (bitmap[at / 32] >> at % 32 & 1) != 0;
  }
  __device__ int num_words() const { return (size + 31) / 32; }
  __device__ int words_per_thread() const {
    return (num_words() + kThreads - 1) / kThreads;
  }
  // The tokens of a word that have edits.
  __device__ uint32_t Edited(int word) const {
    return only_common ? common[word]
                       : common[word] | touched[word] | banned[word];
  }
  // Returns the place of an edited token in the list.
  __device__ int PlaceOf(int token) const {
    const int word = (token - first) / 32;
    const int run = word / words_per_thread();
    int place = edited_before[run];
    for (int w = run * words_per_thread(); w < word; ++w) {
      place += __popc(Edited(w));
    }
    return place + __popc(Edited(word) & ((1u << (token - first) % 32) - 1));
  }

  int first;
  int size;
  bool only_common;    // whether other tokens' edits are left out
  uint32_t* common;    // tokens with common edits
  uint32_t* touched;   // by penalties
  uint32_t* banned;    // by the history
  int* edited_before;  // [kThreads], shared: below each thread's words
};

__device__ void MarkTokens(const RowHistory& history,
                           const CudaEditParams& params, const TokenEdit* edits,
                           const Window& window) {
  for (int w = threadIdx.x; w < window.num_words(); w += kThreads) {
    window.common[w] = window.touched[w] = window.banned[w] = 0;
  }
  __syncthreads();
  for (int i = params.common_begin + threadIdx.x; i < params.common_end;
       i += kThreads) {
    const int token = edits[i].token;
    if (window.Holds(token)) window.Mark(window.common, token);
  }
  ForEachHistoryEdit(history, params, edits,
                     [&](int token, bool penalised, bool banned) {
                       if (!window.Holds(token)) return;
                       if (penalised) window.Mark(window.touched, token);
                       if (banned) window.Mark(window.banned, token);
                     });
  __syncthreads();
}

// Returns the edit of a token from the bitmaps. A ban replaces all other edits.
__device__ TokenEdit EditOf(int token, const CudaEditParams& params,
                            const Window& window) {
  if (window.Has(window.banned, token)) {
    return {.token = token, .banned = true};
  }
  return {.token = token,
          .repeated = params.repetition_penalty != 1.0f &&
                      window.Has(window.touched, token)};
}

// Writes an entry for each token that has an edit; returns their number.
__device__ int ListTokens(const CudaEditParams& params, const Window& window,
                          TokenEdit* list, Scan::TempStorage& storage) {
  const int begin =
      min(int(threadIdx.x) * window.words_per_thread(), window.num_words());
  const int end = min(begin + window.words_per_thread(), window.num_words());
  int count = 0;
  for (int w = begin; w < end; ++w) count += __popc(window.Edited(w));
  int place;
  int total;
  Scan(storage).ExclusiveSum(count, place, total);
  window.edited_before[threadIdx.x] = place;
  for (int w = begin; w < end; ++w) {
    for (uint32_t bits = window.Edited(w); bits != 0; bits &= bits - 1) {
      const int token = window.first + 32 * w + __ffs(bits) - 1;
      list[place++] = EditOf(token, params, window);
    }
  }
  __syncthreads();
  return total;
}

// Adds the common edits, which do not depend on the history.
__device__ void AddCommon(const CudaEditParams& params, const TokenEdit* edits,
                          const Window& window, TokenEdit* list) {
  for (int i = params.common_begin + threadIdx.x; i < params.common_end;
       i += kThreads) {
    const TokenEdit common = edits[i];
    if (!window.Holds(common.token)) continue;
    TokenEdit edit = EditOf(common.token, params, window);
    if (edit.banned) continue;  // as is listed
    if (common.banned) {
      edit = common;
    } else {
      edit.bias = common.bias;
      edit.decay = common.decay;
    }
    list[window.PlaceOf(common.token)] = edit;
  }
  __syncthreads();
}

// A token's count is stored as its penalty until all are counted.
__device__ void AddCounts(const RowHistory& history,
                          const CudaEditParams& params, const Window& window,
                          TokenEdit* list, int count) {
  for (int i = params.num_prompt_tokens + threadIdx.x; i < history.size();
       i += kThreads) {
    const int token = history[i];
    const bool is_listed =
        window.Holds(token) &&
        (!window.only_common || window.Has(window.common, token));
    if (!is_listed) continue;
    TokenEdit* const edit = list + window.PlaceOf(token);
    if (!edit->banned) atomicAdd(reinterpret_cast<int*>(&edit->penalty), 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int times = __float_as_int(list[i].penalty);
    if (times == 0) continue;
    list[i].penalty = __fadd_rn(
        __fmul_rn(params.frequency_penalty, static_cast<float>(times)),
        params.presence_penalty);
  }
  __syncthreads();
}

// Writes the edits of the window's tokens and returns their number.
__device__ int CollectWindow(const RowHistory& history,
                             const CudaEditParams& params,
                             const TokenEdit* edits, const Window& window,
                             TokenEdit* list, Scan::TempStorage& storage) {
  MarkTokens(history, params, edits, window);
  const int count = ListTokens(params, window, list, storage);
  if (params.common_begin < params.common_end) {
    AddCommon(params, edits, window, list);
  }
  if (Counts(params)) AddCounts(history, params, window, list, count);
  return count;
}

__global__ void __launch_bounds__(kThreads)
    CollectEditsOfRows(const __grid_constant__ CudaHistoryInputs in,
                       CudaRowEdits* row_edits, TokenEdit* edits) {
  __shared__ Scan::TempStorage storage;
  __shared__ int edited_before[kThreads];
  extern __shared__ uint32_t bitmaps[];  // three
  LaunchDependents();
  GridDependencyWait();
  const int row_idx = blockIdx.x;
  // Loads both together, even if the row has no params, to overlap their
  // latencies.
  const CudaEditRow row = in.rows[row_idx];
  const float cum = in.histories.cum_log_probs[row_idx];
  const int token = in.histories.logits_tokens[row_idx];
  if (row.params < 0) return;
  const CudaEditParams params = in.params[row.params];
  const RowHistory history(in.histories, token);
  int count = 0;
  if (cum > -INFINITY) {
    for (int first = 0; first < in.histories.vocab_size; first += kWindow) {
      const int size = min(kWindow, in.histories.vocab_size - first);
      const Window window = {.first = first,
                             .size = size,
                             .only_common = params.is_allow_list != 0,
                             .common = bitmaps,
                             .touched = bitmaps + EditsPolicy::kWords,
                             .banned = bitmaps + 2 * EditsPolicy::kWords,
                             .edited_before = edited_before};
      count += CollectWindow(history, params, edits, window,
                             edits + row.begin + count, storage);
    }
  }
  if (threadIdx.x != 0) return;
  row_edits[row_idx] = {.begin = row.begin,
                        .end = row.begin + count,
                        .repetition_penalty = params.repetition_penalty,
                        .is_allow_list = params.is_allow_list != 0};
}

}  // namespace

absl::Status PrepareCudaCollectEdits() {
  return SetMaxDynamicSharedMemory(CollectEditsOfRows,
                                   EditsPolicy::kBitmapBytes);
}

absl::Status CudaCollectEdits(const CudaHistoryInputs& inputs,
                              CudaRowEdits* row_edits, TokenEdit* edits,
                              cudaStream_t stream) {
  RETURN_IF_ERROR(inputs.histories.Check());
  return Launch(CollectEditsOfRows,
                {.grid = {static_cast<unsigned>(inputs.histories.num_rows)},
                 .block = {kThreads},
                 .shared_bytes = EditsPolicy::kBitmapBytes,
                 .dependency = GridDependency::kWritesEarlyRead},
                stream, inputs, row_edits, edits);
}

}  // namespace espalier
