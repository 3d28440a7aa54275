// A block a row: the tokens with edits are marked as bits of the vocabulary, so
// that counting the bits below a token gives its place in the sorted list; then
// the history is read again and every token tells its entry what it does.
//
// Bound by latency: two reads of the history, a few kilobytes that the
// second-level cache has, and as many atomic operations.
#include <cub/block/block_scan.cuh>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/cuda_history_edits.h"

namespace espalier {
namespace {

struct EditsPolicy {
  // A history of a thousand tokens in one round: rows are few against the
  // device, and rounds wait for memory.
  static constexpr int kThreads = 1024;
  // Tokens of the vocabulary that are looked at together, a bit each: 32 KiB of
  // shared memory, and one round for the vocabularies that there are.
  static constexpr int kWindow = 1 << 18;
  static constexpr int kWords = kWindow / 32;
};
constexpr int kThreads = EditsPolicy::kThreads;
constexpr int kWindow = EditsPolicy::kWindow;

using Scan = cub::BlockScan<int, kThreads>;

// What the history does to one of its tokens.
struct Touch {
  bool repeated = false;
  bool counted = false;
  bool banned = false;
};

class History {
 public:
  __device__ History(const CudaHistoryInputs& in, int row)
      : page_size_(in.page_size) {
    const int token = in.logits_tokens[row];
    size_ = in.positions[token] + 1;
    table_ = in.tables + int64_t{in.token_tables[token]} * in.table_stride;
    tokens_ = in.page_tokens;
  }
  __device__ int size() const { return size_; }
  __device__ int operator[](int i) const {
    return tokens_[int64_t{table_[i / page_size_]} * page_size_ +
                   i % page_size_];
  }

 private:
  const int page_size_;
  int size_;
  const int* table_;
  const int* tokens_;
};

// Whether the n - 1 tokens before place `i` are the last ones too.
__device__ bool FollowsTheSame(const History& history, int i, int n) {
  if (i < n - 1) return false;
  // From the end: the last tokens of most places differ already.
  for (int back = 1; back < n; ++back) {
    if (history[i - back] != history[history.size() - back]) return false;
  }
  return true;
}

// Whether entry `last` is the last token of a bad word that is complete but for
// it.
__device__ bool IsDue(const History& history, const CudaEditRule& rule,
                      const TokenEdit* edits, int last) {
  if (!edits[last].banned) return false;
  for (int back = 1;; ++back) {
    const int entry = last - back;
    if (entry < rule.words_begin || edits[entry].banned) return true;
    // As on the host: a word as long as the history counts, a longer one not.
    if (back >= history.size()) return false;
    if (edits[entry].token != history[history.size() - back]) return false;
  }
}

// All threads: calls visit(token, touch) for all that the history does.
template <typename Visit>
__device__ void ForTouched(const History& history, const CudaEditRule& rule,
                           const TokenEdit* edits, const Visit& visit) {
  const bool repeats = rule.repetition_penalty != 1.0f;
  const bool counts =
      rule.frequency_penalty != 0.0f || rule.presence_penalty != 0.0f;
  const int n = rule.no_repeat_ngram_size;
  const int first = repeats || n > 0 ? 0
                    : counts         ? rule.num_prompt_tokens
                                     : history.size();
  for (int i = first + threadIdx.x; i < history.size(); i += kThreads) {
    const Touch touch = {.repeated = repeats,
                         .counted = counts && i >= rule.num_prompt_tokens,
                         .banned = n > 0 && FollowsTheSame(history, i, n)};
    if (repeats || touch.counted || touch.banned) visit(history[i], touch);
  }
  for (int i = rule.words_begin + threadIdx.x; i < rule.words_end;
       i += kThreads) {
    if (!IsDue(history, rule, edits, i)) continue;
    visit(edits[i].token, Touch{.banned = true});
  }
}

// The tokens [first, first + size) of the vocabulary that have edits.
struct Window {
  __device__ bool Holds(int token) const {
    return token >= first && token < first + size;
  }
  __device__ bool IsMarked(int token) const {
    const int at = token - first;
    return (words[at / 32] >> at % 32 & 1) != 0;
  }
  __device__ void Mark(int token) const {
    const int at = token - first;
    atomicOr(&words[at / 32], 1u << at % 32);
  }
  __device__ int num_words() const { return (size + 31) / 32; }
  __device__ int words_per_thread() const {
    return (num_words() + kThreads - 1) / kThreads;
  }
  // How many marked tokens are below it.
  __device__ int PlaceOf(int token) const {
    const int word = (token - first) / 32;
    const int run = word / words_per_thread();
    int place = marked_before[run];
    for (int w = run * words_per_thread(); w < word; ++w) {
      place += __popc(words[w]);
    }
    return place + __popc(words[word] & ((1u << (token - first) % 32) - 1));
  }

  int first;
  int size;
  uint32_t* words;     // [kWords], shared
  int* marked_before;  // [kThreads], shared: below each thread's words
};

__device__ void MarkEdited(const History& history, const CudaEditRule& rule,
                           const TokenEdit* edits, const Window& window) {
  for (int w = threadIdx.x; w < window.num_words(); w += kThreads) {
    window.words[w] = 0;
  }
  __syncthreads();
  for (int i = rule.common_begin + threadIdx.x; i < rule.common_end;
       i += kThreads) {
    const int token = edits[i].token;
    if (window.Holds(token)) window.Mark(token);
  }
  if (rule.only_edited == 0) {
    ForTouched(history, rule, edits, [&](int token, Touch) {
      if (window.Holds(token)) window.Mark(token);
    });
  }
  __syncthreads();
}

// Numbers the marked tokens and gives each an entry that does nothing; returns
// how many there are.
__device__ int ListMarked(const Window& window, TokenEdit* list,
                          Scan::TempStorage& storage) {
  const int begin =
      min(int(threadIdx.x) * window.words_per_thread(), window.num_words());
  const int end = min(begin + window.words_per_thread(), window.num_words());
  int count = 0;
  for (int w = begin; w < end; ++w) count += __popc(window.words[w]);
  int place;
  int total;
  Scan(storage).ExclusiveSum(count, place, total);
  window.marked_before[threadIdx.x] = place;
  for (int w = begin; w < end; ++w) {
    for (uint32_t bits = window.words[w]; bits != 0; bits &= bits - 1) {
      list[place++] = {.token = window.first + 32 * w + __ffs(bits) - 1};
    }
  }
  __syncthreads();
  return total;
}

// A token's count stands in its penalty's place until all are counted.
__device__ void Tell(TokenEdit* edit, const Touch& touch) {
  static_assert(offsetof(TokenEdit, banned) == 4 &&
                offsetof(TokenEdit, repeated) == 5 &&
                offsetof(TokenEdit, penalty) == 12 && sizeof(bool) == 1);
  auto* const words = reinterpret_cast<unsigned*>(edit);
  const unsigned flags =
      (touch.banned ? 1u : 0u) | (touch.repeated ? 0x100u : 0u);
  if (flags != 0) atomicOr(words + 1, flags);
  if (touch.counted) atomicAdd(words + 3, 1u);
}

// Penalties of counts; a ban says all there is to say.
__device__ TokenEdit Finished(TokenEdit edit, const CudaEditRule& rule) {
  if (edit.banned) return {.token = edit.token, .banned = true};
  const int count = __float_as_int(edit.penalty);
  if (count > 0) {
    edit.penalty =
        __fadd_rn(__fmul_rn(rule.frequency_penalty, static_cast<float>(count)),
                  rule.presence_penalty);
  }
  return edit;
}

// Writes the edits of the window's tokens and returns how many there are.
__device__ int CollectWindow(const History& history, const CudaEditRule& rule,
                             const TokenEdit* edits, const Window& window,
                             TokenEdit* list, Scan::TempStorage& storage) {
  MarkEdited(history, rule, edits, window);
  const int count = ListMarked(window, list, storage);
  for (int i = rule.common_begin + threadIdx.x; i < rule.common_end;
       i += kThreads) {
    const TokenEdit edit = edits[i];
    if (window.Holds(edit.token)) list[window.PlaceOf(edit.token)] = edit;
  }
  __syncthreads();
  ForTouched(history, rule, edits, [&](int token, const Touch& touch) {
    if (!window.Holds(token) || !window.IsMarked(token)) return;
    Tell(list + window.PlaceOf(token), touch);
  });
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += kThreads) {
    list[i] = Finished(list[i], rule);
  }
  return count;
}

__global__ void __launch_bounds__(kThreads)
    CollectEditsOfRows(const __grid_constant__ CudaHistoryInputs in,
                       CudaRowEdits* row_edits, TokenEdit* edits) {
  __shared__ Scan::TempStorage storage;
  __shared__ uint32_t words[EditsPolicy::kWords];
  __shared__ int marked_before[kThreads];
  LetNextStart();
  WaitForPrevious();
  const int row_idx = blockIdx.x;
  const CudaEditRow row = in.rows[row_idx];
  if (row.rule < 0) return;
  const CudaEditRule rule = in.rules[row.rule];
  int count = 0;
  if (in.cum_log_probs[row_idx] > -INFINITY) {
    const History history(in, row_idx);
    for (int first = 0; first < in.vocab_size; first += kWindow) {
      const int size = min(kWindow, in.vocab_size - first);
      count += CollectWindow(history, rule, edits,
                             {first, size, words, marked_before},
                             edits + row.begin + count, storage);
      __syncthreads();
    }
  }
  if (threadIdx.x != 0) return;
  row_edits[row_idx] = {.begin = row.begin,
                        .end = row.begin + count,
                        .repetition_penalty = rule.repetition_penalty,
                        .only_edited = rule.only_edited != 0};
}

}  // namespace

absl::Status CudaCollectEdits(const CudaHistoryInputs& inputs,
                              CudaRowEdits* row_edits, TokenEdit* edits,
                              cudaStream_t stream) {
  if (inputs.num_rows < 1 || inputs.vocab_size < 1 || inputs.page_size < 1) {
    return InvalidArgument("edits of ", inputs.num_rows, " rows of ",
                           inputs.vocab_size, " tokens with pages of ",
                           inputs.page_size, " are not possible");
  }
  return Launch(
      CollectEditsOfRows,
      {.grid = {static_cast<unsigned>(inputs.num_rows)}, .block = {kThreads}},
      stream, inputs, row_edits, edits);
}

}  // namespace espalier
