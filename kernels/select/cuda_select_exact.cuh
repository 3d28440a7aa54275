// Selection by one block with no assumption about the scores: radix select of
// the k-th largest key, and a group row by row. Needs a bounded number of
// passes over the rows and no memory for ties.
#pragma once

#include "kernels/cuda_warp_scan.cuh"
#include "kernels/select/cuda_select_group.cuh"

namespace espalier::cuda_select {

// 11 bits a digit. The first digit, with sign, exponent and two bits of the
// fraction, spreads logits over some 40 counters, so that few lanes collide. A
// score takes three digits and a position three.
constexpr int kDigitBits = 11;
constexpr int kNumDigits = 1 << kDigitBits;
constexpr int kScoreBit = 32;  // the lowest of a key's score

struct DigitCounts {
  // A word of padding after every 64, so that lanes that each add 64 words have
  // no bank conflicts.
  int padded[kNumDigits + kNumDigits / 64];
  int digit;  // digit of the k-th largest; -1: fewer than k
  int left;   // elements still to choose with the digit
  int count;  // elements with the digit

  __device__ int& at(int digit) { return padded[digit + digit / 64]; }
};

// One warp: finds the digit of the k-th largest from the counts: first its run
// of 64 digits, then the digit.
__device__ inline void FindDigit(int k, DigitCounts& shared) {
  constexpr int kRun = kNumDigits / kWarpSize;
  static_assert(kRun == 2 * kWarpSize);
  const int lane = threadIdx.x % kWarpSize;
  const int top = kNumDigits - 1 - lane * kRun;
  int own = 0;
#pragma unroll 8
  for (int i = 0; i < kRun; ++i) own += shared.at(top - i);
  const int up_to = WarpInclusiveSum(own);
  const unsigned reached = __ballot_sync(kAllLanes, up_to >= k);
  if (reached == 0) {
    if (lane == 0) shared.digit = -1;
    return;
  }
  const int run = __ffs(reached) - 1;
  const int before = __shfl_sync(kAllLanes, up_to - own, run);
  const int first = kNumDigits - 1 - run * kRun - 2 * lane;
  const int counts[2] = {shared.at(first), shared.at(first - 1)};
  int above =
      before + WarpInclusiveSum(counts[0] + counts[1]) - counts[0] - counts[1];
  for (int i = 0; i < 2; ++i) {
    if (above < k && above + counts[i] >= k) {
      shared.digit = first - i;
      shared.left = k - above;
      shared.count = counts[i];
    }
    above += counts[i];
  }
}

// All threads: returns a key such that exactly k of the keys (or, if digits
// below `low_bit` would decide, at least k) are not below it; 0 if there are
// fewer. `for_each(add)` calls add(key, weight) for this thread's keys, none of
// which is 0; a weight of -1 removes a key.
template <typename ForEach>
__device__ ScoreKey KthLargest(const ForEach& for_each, int k, int low_bit,
                               DigitCounts& shared) {
  ScoreKey prefix = 0;
  int shift = 64;
  while (shift > low_bit) {
    // Digits end at the lowest bit of the score and at that of the position.
    const int end = shift > kScoreBit ? kScoreBit : 0;
    const ScoreKey known = shift == 64 ? 0 : ~ScoreKey{0} << shift;
    const int bits = min(kDigitBits, shift - end);
    shift -= bits;
    for (int i = threadIdx.x; i < kNumDigits; i += blockDim.x) {
      shared.at(i) = 0;
    }
    __syncthreads();
    for_each([&](ScoreKey key, int weight) {
      if ((key & known) != prefix) return;
      const int digit = static_cast<int>(key >> shift) & ((1 << bits) - 1);
      atomicAdd(&shared.at(digit), weight);
    });
    __syncthreads();
    if (threadIdx.x < kWarpSize) FindDigit(k, shared);
    __syncthreads();
    const int digit = shared.digit;
    if (digit < 0) return 0;
    prefix |= static_cast<ScoreKey>(digit) << shift;
    k = shared.left;
    if (shared.count == k) break;
  }
  __syncthreads();
  return prefix;
}

struct ExactShared {
  DigitCounts digits;
  int count;
};

// All threads: passes the tokens of `row` from which the group chooses to
// `append(key)`: at most m, as from SelectRow.
template <typename T, typename Append>
__device__ void ChooseInRow(const RowView<T>& row, int m, DigitCounts& digits,
                            const Append& append) {
  const bool by_log_prob = row.domain() == ScoreDomain::kLogProbs;
  // All candidates are edited ones.
  const bool restricts = row.is_allow_list() || row.has_mask();
  const auto for_each_logit = [&](const auto& visit) {
    // Issues several loads before it uses the first.
    constexpr int kAtOnce = 8;
    for (int base = threadIdx.x; base < row.vocab_size();
         base += kAtOnce * blockDim.x) {
      float x[kAtOnce];
      row.Logits(
          [base](int i) { return static_cast<int>(base + i * blockDim.x); }, x);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (x[i] > MinusInf()) visit(base + i * blockDim.x, x[i]);
      }
    }
  };
  const auto for_each_token = [&](const auto& visit) {
    if (!restricts) for_each_logit(visit);
  };
  const auto for_each_edit = [&](const auto& visit) {
    for (int e = row.row_edits().begin + threadIdx.x; e < row.row_edits().end;
         e += blockDim.x) {
      const TokenEdit edit = row.edit(e);
      if (row.IsMasked(edit.token)) continue;
      const float x = row.Logit(edit.token);
      if (x > MinusInf()) visit(edit.token, x, edit);
    }
    if (!row.has_mask() || row.is_allow_list()) return;
    for_each_logit([&](int t, float x) {
      if (row.IsMasked(t) || (row.has_edits() && row.IsEdited(t))) return;
      visit(t, x, TokenEdit{.token = t});
    });
  };
  const auto add_if = [](const auto& add, float score, int token) {
    if (score > MinusInf()) add(MakeScoreKey(score, token), 1);
  };
  // The m best unedited tokens by logit; in kLogits the m best of all tokens.
  const ScoreKey logit_cut = KthLargest(
      [&](const auto& add) {
        for_each_token([&](int t, float x) { add(MakeScoreKey(x, t), 1); });
        for_each_edit([&](int t, float x, const TokenEdit& edit) {
          if (!restricts) add(MakeScoreKey(x, t), -1);
          if (!by_log_prob && !edit.banned) add_if(add, row.Edited(x, edit), t);
        });
      },
      m, 0, digits);
  // Together with the edited tokens, the m best by log-probability.
  ScoreKey log_prob_cut = 0;
  if (by_log_prob && (row.has_edits() || row.has_mask())) {
    log_prob_cut = KthLargest(
        [&](const auto& add) {
          const auto add_log_prob = [&](int t, float x, int weight) {
            const float l = row.LogProb(x);
            if (MakeScoreKey(x, t) >= logit_cut && l > MinusInf()) {
              add(MakeScoreKey(l, t), weight);
            }
          };
          for_each_token([&](int t, float x) { add_log_prob(t, x, 1); });
          for_each_edit([&](int t, float x, const TokenEdit& edit) {
            if (!restricts) add_log_prob(t, x, -1);
            if (!edit.banned) add_if(add, row.Edited(row.LogProb(x), edit), t);
          });
        },
        m, 0, digits);
  }
  const auto append_sum = [&](int t, float log_prob) {
    const float sum = row.Sum(log_prob);
    if (log_prob > MinusInf() && sum > MinusInf()) append(row.Key(sum, t));
  };
  for_each_token([&](int t, float x) {
    if (MakeScoreKey(x, t) < logit_cut) return;
    if (row.has_edits() && row.IsEdited(t)) return;
    const float l = row.LogProb(x);
    if (MakeScoreKey(l, t) >= log_prob_cut) append_sum(t, l);
  });
  for_each_edit([&](int t, float x, const TokenEdit& edit) {
    if (edit.banned) return;
    const float l = row.LogProb(x);
    const float score = row.Edited(by_log_prob ? l : x, edit);
    const ScoreKey cut = by_log_prob ? log_prob_cut : logit_cut;
    if (score > MinusInf() && MakeScoreKey(score, t) >= cut) {
      append_sum(t, by_log_prob ? score : l);
    }
  });
}

// All threads: writes the keys of the group's best sums, in any order, and
// returns their number. `best` holds keys of sums, `spare` has the same
// capacity; both [2 * num_candidates], shared or global.
template <typename T>
__device__ int ChooseRowByRow(const Params& p, const CudaSelectGroup& group,
                              ScoreKey*& best, ScoreKey*& spare,
                              ExactShared& shared) {
  const int m = group.num_candidates;
  ScoreKey floor = 0;  // not above the m-th best so far
  if (threadIdx.x == 0) shared.count = 0;
  __syncthreads();
  for (int beam = 0; beam < group.num_rows; ++beam) {
    if (!(p.in.cum_log_probs[group.first_row + beam] > MinusInf())) continue;
    const RowView<T> row(p, group, beam, /*by_logit=*/false);
    if (!row.alive()) continue;
    const float first = row.Sum(row.LogProb(row.max()));
    if (!row.has_edits() && row.Key(first, 0) < floor) continue;
    ChooseInRow(row, m, shared.digits,
                [&](ScoreKey key) { best[atomicAdd(&shared.count, 1)] = key; });
    __syncthreads();
    const int count = shared.count;
    if (count <= m) continue;
    floor = KthLargest(
        [&](const auto& add) {
          for (int i = threadIdx.x; i < count; i += blockDim.x) add(best[i], 1);
        },
        m, 0, shared.digits);
    if (threadIdx.x == 0) shared.count = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
      if (best[i] >= floor) spare[atomicAdd(&shared.count, 1)] = best[i];
    }
    __syncthreads();
    ScoreKey* const swapped = best;
    best = spare;
    spare = swapped;
  }
  __syncthreads();
  return shared.count;
}

}  // namespace espalier::cuda_select
