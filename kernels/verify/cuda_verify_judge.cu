// One block per row. Computes the cut of its filters and the probability of the
// drafted token, or samples a token; and, if this row alone decides it, the
// token that replaces a rejected draft (cuda_verify.cu).
#include "kernels/sample/cuda_sample_draw.cuh"
#include "kernels/sample/sample_filters.h"
#include "kernels/verify/cuda_verify_answer.cuh"

namespace espalier::cuda_sample {
namespace {

// The task of a row, read by all threads before the row is complete.
struct RowTask {
  bool exists = false;
  int sequence_idx = 0;
  CudaVerifySequence sequence;
  bool is_target = false;
  int index = 0;  // among the sequence's rows of its kind
  TokenId draft = kNoToken;
  bool by_chance = false;
  RowOptions options;
  // The number that accepts the draft, or that samples a token if none is
  // needed for acceptance.
  double uniform = 0;

  __device__ RowTask(const VerifyParams& p, int row)
      : sequence_idx(p.in.row_sequences[row]) {
    if (sequence_idx < 0 || sequence_idx >= *p.in.num_sequences) return;
    sequence = p.in.sequences[sequence_idx];
    index = row - sequence.first_row;
    is_target = index >= 0 && index <= sequence.num_drafts;
    if (!is_target) {
      index = row - sequence.first_draft_row;
      if (sequence.first_draft_row < 0 || index < 0) return;
    }
    draft = DraftAt(p, sequence, index);
    by_chance = IsByChance(p, sequence, index, draft);
    // A draft row gives only its probability.
    exists = is_target || by_chance;
    if (!exists) return;
    options = RowOptions(p.in.params[p.in.row_params[row]]);
    uniform =
        NoiseOf(p, sequence, index,
                by_chance ? RandomPurpose::kAccept : RandomPurpose::kDraw);
  }
};

// If `kFilters`, options may have filters, which a launch with masks assumes.
template <typename T, typename Policy, bool kFilters>
class RowJudge : public Sampler<T, Policy> {
 public:
  using Base = Sampler<T, Policy>;
  using Base::Base;
  using Row = RowFilter<T, Policy>;

  // All threads: computes the verdict of a draft's row, or of a target row as
  // far as it follows from that row.
  __device__ void Judge(const VerifyParams& p, const RowTask& task, int row) {
    RowVerdict found = Judged(task.options, task.draft);
    // With a draft row, acceptance depends on that row too.
    const bool alone = task.is_target && task.sequence.first_draft_row < 0 &&
                       found.token >= 0 && p.recovers_alone() &&
                       KeepsAll(task.options.params, vocab_size_);
    if (!alone || found.probability >= task.uniform) {
      if (threadIdx.x == 0) p.verdicts[row] = found;
      return;
    }
    const Drawn drawn = DrawWithout(
        task.draft,
        NoiseOf(p, task.sequence, task.index, RandomPurpose::kRecover));
    if (drawn.token == kNotLeader) return;
    found.recovered = drawn.token;
    found.recovered_log_prob = found.raw.LogProb(drawn.logit);
    p.verdicts[row] = found;
  }

 private:
  // Returns the verdict on the row. Ignores NaN until log_sum is known, which
  // is NaN then.
  __device__ RowVerdict Judged(const RowOptions& options, TokenId draft) {
    RowVerdict found;
    Cut(options, found);
    const RawRow raw = {SharedStorage().raw_max, SharedStorage().log_sum};
    if (raw.log_sum != raw.log_sum) found.cut.token = kNotANumber;
    found.raw = raw;
    found.token = found.cut.token < 0 ? found.cut.token : 0;
    if (found.token < 0) {
      found.total = 1;  // avoids a division by 0
    } else {
      const float logit = logits_.Logit(draft);
      const float edited = edits_.any() ? edits_.Edited(draft, logit) : logit;
      found.log_prob = raw.LogProb(logit);
      // A weight below one unit is never sampled.
      const float weight = WeightIn(found.cut, edited, draft);
      found.probability = weight >= 1 / kUnit ? weight / found.total : 0;
    }
    return found;
  }

  // Samples a token other than `draft`; one thread gets it. The tokens of the
  // tile that holds `draft` are summed again, so that the sum without it is
  // exact.
  __device__ Drawn DrawWithout(TokenId draft, double uniform) {
    constexpr int kEach = kTileSize / Policy::kThreads;
    const int its_tile = draft / kTileSize;
    float x[kEach];
    Mass weights[kEach];
    const Mass rest = SumOverBlock<Policy>(
        WeightsInTile(its_tile, draft, x, weights), SharedStorage().more_sums);
    return DrawByTiles(
        [&](int tile) { return tile == its_tile ? rest : MassOfTile(tile); },
        uniform, draft);
  }

  using Row::ArgMax;
  using Row::BoundFew;
  using Row::cut_;
  using Row::edits_;
  using Row::Filter;
  using Row::is_typical_;
  using Row::Kept;
  using Row::logits_;
  using Row::MassOfTile;
  using Row::MassOfTiles;
  using Row::max_;
  using Row::mean_;
  using Row::ReadMaxima;
  using Row::scale_;
  using Row::SumRaw;
  using Row::typical_cut_;
  using Row::vocab_size_;

  // All threads: computes the tokens that the filters keep.
  __device__ void Cut(const RowOptions& options, RowVerdict& found) {
    const SamplingParams& params = options.params;
    RowCut& cut = found.cut;
    cut.scale = scale_ = options.scale;
    cut.max = max_ = ReadMaxima();
    SumRaw();
    __syncthreads();
    if (!(max_ > MinusInf())) {
      cut.token = kNoToken;
      return;
    }
    if (params.temperature == 0.0f) {
      cut.token = ArgMax();
      cut.is_greedy = true;
      return;
    }
    Mass total = 0;
    if (!kFilters || KeepsAll(params, vocab_size_)) {
      // No token is dropped: the tiles' sums are the total.
      total = MassOfTiles();
    } else if constexpr (kFilters) {
      if (KeepsFew(params, vocab_size_)) BoundFew(options);
      Filter(params);
      total = Kept();
    }
    found.total = static_cast<double>(total) / kUnit;
    cut.cut = cut_;
    cut.is_typical = is_typical_;
    cut.typical_cut = typical_cut_;
    cut.mean = mean_;
  }
};

template <typename T, typename Policy, bool kFilters>
__device__ __noinline__ void DrawPlainly(const VerifyParams& p,
                                         const RowTask& task, int row) {
  Sampler<T, Policy> sampler(p.sample, {.row = row}, TilesOf(p.sample, row));
  const DrawTask draw(task.options, task.uniform);
  Drawn drawn;
  if constexpr (kFilters) {
    drawn = sampler.Draw(draw);
  } else {
    drawn = sampler.DrawUnfiltered(draw);
  }
  if (drawn.token == kNotLeader) return;
  RowVerdict found;
  found.raw = {SharedStorage().raw_max, SharedStorage().log_sum};
  const bool has_nan = found.raw.log_sum != found.raw.log_sum;
  found.token = has_nan ? kNotANumber : drawn.token;
  if (found.token >= 0) found.log_prob = found.raw.LogProb(drawn.logit);
  p.verdicts[row] = found;
}

// One block: writes the verdict on a row that has been read.
template <typename T, typename Policy, bool kFilters>
__device__ void JudgeRow(const VerifyParams& p, const RowTask& task, int row) {
  if (task.is_target && task.index == 0 && threadIdx.x == 0) {
    p.arrivals[task.sequence_idx] = 0;
  }
  if (!task.by_chance) return DrawPlainly<T, Policy, kFilters>(p, task, row);
  RowJudge<T, Policy, kFilters> judge(p.sample, {.row = row},
                                      TilesOf(p.sample, row));
  judge.Judge(p, task, row);
}

// A block: returns true for the last of `count` callers, which sees the writes
// of all others. The counter is 0 again then.
__device__ bool IsLast(unsigned* counter, unsigned count) {
  __shared__ bool is_last;
  __threadfence();  // before the counter is incremented
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicInc(counter, count - 1) == count - 1;
    __threadfence();  // before others' is read
  }
  __syncthreads();
  return is_last;
}

// The last block of a sequence to finish writes its result if verdicts suffice.
template <typename T, typename Policy, bool kFilters>
__global__
__launch_bounds__(Policy::kThreads, Policy::kMinBlocks) void JudgeDrafts(
    const __grid_constant__ VerifyParams p) {
  LaunchDependents();
  const int row = static_cast<int>(blockIdx.x);
  const RowTask task(p, row);
  Clear<Policy>(p.in.vocab_size);
  GridDependencyWait();
  if (!task.exists) return;
  JudgeRow<T, Policy, kFilters>(p, task, row);
  if (p.needs_recovery() || !task.is_target) return;
  const CudaVerifySequence& sequence = task.sequence;
  if (!IsLast(p.in.counters + task.sequence_idx, sequence.num_drafts + 1)) {
    return;
  }
  AnswerAtEnd(p, task.sequence_idx, sequence, FindEnd(p, sequence));
}

template <typename T, bool kFilters>
absl::Status LaunchJudge(const VerifyParams& p, const CudaDevice& device,
                         cudaStream_t stream) {
  const auto shape = [&p](int num_threads) -> LaunchConfig {
    return {.grid = dim3(p.in.num_rows),
            .block = dim3(num_threads),
            .dependency = GridDependency::kReadsEarly};
  };
  if (p.in.num_rows <= device.num_sms) {
    return Launch(JudgeDrafts<T, SmallBatchPolicy, kFilters>,
                  shape(SmallBatchPolicy::kThreads), stream, p);
  }
  return Launch(JudgeDrafts<T, LargeBatchPolicy, kFilters>,
                shape(LargeBatchPolicy::kThreads), stream, p);
}

template <typename T>
absl::Status LaunchJudge(const VerifyParams& p, const CudaDevice& device,
                         cudaStream_t stream) {
  return kIsMasked<T> || p.in.has_filters
             ? LaunchJudge<T, true>(p, device, stream)
             : LaunchJudge<T, kIsMasked<T>>(p, device, stream);
}

}  // namespace

absl::Status JudgeRows(const VerifyParams& p, const CudaDevice& device,
                       cudaStream_t stream) {
  return ByRowType(p.sample.in, [&]<typename T>() {
    return LaunchJudge<T>(p, device, stream);
  });
}

}  // namespace espalier::cuda_sample
