// A block a row: what the filters leave of it and how likely the drafted token
// is, or what plain sampling draws (cuda_verify.cu).
#include "kernels/sample/cuda_sample_draw.cuh"
#include "kernels/verify/cuda_verify_row.cuh"

namespace espalier::cuda_sample {
namespace {

// What a row is for.
struct RowTask {
  bool exists = false;
  int sequence_idx = 0;
  CudaVerifySequence sequence;
  bool is_target = false;
  int index = 0;  // among the sequence's rows of its kind
  TokenId draft = kNoToken;
  bool by_chance = false;
  RowOptions options;

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
    // A row of a draft is asked for its probability alone.
    exists = is_target || by_chance;
    if (exists) options = RowOptions(p.in.params[p.in.row_params[row]]);
  }
};

template <typename T, typename Policy>
class RowJudge : public RowFilter<T, Policy> {
 public:
  using Base = RowFilter<T, Policy>;
  using Base::Base;

  // The verdict, to the first thread. A NaN is passed over until then.
  __device__ void Judge(const RowOptions& options, TokenId draft,
                        RowVerdict* verdict) {
    RowVerdict found;
    Cut(options, found);
    if (threadIdx.x != 0) return;
    const RawRow raw = {SharedStorage().raw_max, SharedStorage().log_sum};
    if (raw.log_sum != raw.log_sum) found.cut.token = kNotANumber;
    found.raw = raw;
    found.token = found.cut.token < 0 ? found.cut.token : 0;
    if (found.token < 0) {
      found.total = 1;  // of nothing; it is divided by
    } else {
      const float logit = logits_.Logit(draft);
      const float edited = edits_.any() ? edits_.Edited(draft, logit) : logit;
      found.log_prob = raw.LogProb(logit);
      // What weighs less than a unit is never drawn.
      const float weight = WeightIn(found.cut, edited, draft);
      found.probability = weight >= 1 / kUnit ? weight / found.total : 0;
    }
    *verdict = found;
  }

 private:
  using Base::ArgMax;
  using Base::BoundFew;
  using Base::cut_;
  using Base::edits_;
  using Base::Filter;
  using Base::is_typical_;
  using Base::Kept;
  using Base::logits_;
  using Base::MassOfTiles;
  using Base::max_;
  using Base::mean_;
  using Base::ReadMaxima;
  using Base::scale_;
  using Base::SumRaw;
  using Base::typical_cut_;
  using Base::vocab_size_;

  // All threads: what the filters leave.
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
    const bool few = KeepsFew(params, vocab_size_);
    const bool all = !few && params.top_p == 1.0f && params.typical_p == 1.0f;
    if (few) BoundFew(options);
    if (!all) Filter(params);
    // Where nothing is left out, tiles' sums say it.
    const Mass total = all ? MassOfTiles() : Kept();
    found.total = static_cast<double>(total) / kUnit;
    cut.cut = cut_;
    cut.is_typical = is_typical_;
    cut.typical_cut = typical_cut_;
    cut.mean = mean_;
  }
};

template <typename T, typename Policy>
__device__ __noinline__ void DrawPlainly(const VerifyParams& p,
                                         const RowTask& task, int row) {
  const double uniform =
      NoiseOf(p, task.sequence, task.index, RandomPurpose::kDraw);
  Sampler<T, Policy> sampler(p.sample, {.row = row}, TilesOf(p.sample, row));
  const Drawn drawn = sampler.Draw(DrawTask(task.options, uniform));
  if (drawn.token == kNotLeader) return;
  RowVerdict found;
  found.raw = {SharedStorage().raw_max, SharedStorage().log_sum};
  const bool has_nan = found.raw.log_sum != found.raw.log_sum;
  found.token = has_nan ? kNotANumber : drawn.token;
  if (found.token >= 0) found.log_prob = found.raw.LogProb(drawn.logit);
  p.verdicts[row] = found;
}

template <typename T, typename Policy>
__global__
__launch_bounds__(Policy::kThreads, Policy::kMinBlocks) void JudgeDrafts(
    const __grid_constant__ VerifyParams p) {
  LaunchDependents();
  Clear<Policy>(p.in.vocab_size);
  GridDependencyWait();
  const int row = static_cast<int>(blockIdx.x);
  const RowTask task(p, row);
  if (!task.exists) return;
  if (task.is_target && task.index == 0 && threadIdx.x == 0) {
    p.arrivals[task.sequence_idx] = 0;
  }
  if (!task.by_chance) return DrawPlainly<T, Policy>(p, task, row);
  RowJudge<T, Policy> judge(p.sample, {.row = row}, TilesOf(p.sample, row));
  judge.Judge(task.options, task.draft, p.verdicts + row);
}

template <typename T>
absl::Status LaunchJudge(const VerifyParams& p, const CudaDevice& device,
                         cudaStream_t stream) {
  const dim3 grid(p.in.num_rows);
  if (p.in.num_rows <= device.num_sms) {
    return Launch(JudgeDrafts<T, SmallBatchPolicy>,
                  {.grid = grid, .block = dim3(SmallBatchPolicy::kThreads)},
                  stream, p);
  }
  return Launch(JudgeDrafts<T, LargeBatchPolicy>,
                {.grid = grid, .block = dim3(LargeBatchPolicy::kThreads)},
                stream, p);
}

}  // namespace

absl::Status JudgeRows(const VerifyParams& p, const CudaDevice& device,
                       cudaStream_t stream) {
  return p.in.dtype == DType::kFloat32
             ? LaunchJudge<float>(p, device, stream)
             : LaunchJudge<uint16_t>(p, device, stream);
}

}  // namespace espalier::cuda_sample
