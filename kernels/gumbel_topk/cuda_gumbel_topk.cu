// Gumbel top-k, step by step:
//
//   ReadRows         log_sums of the raw rows, and NaN
//   ProcessRows      edited log-probabilities or logits, to a row of scratch
//   ReadRows         statistics of its tiles
//   FindRowCuts      the tokens that the filters keep
//   AddGumbelNoise   value + noise of these tokens, in place
//   CudaSelect       the best of these, as if they were logits
//   TakeValues       the values of the chosen tokens, computed again
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/gumbel_topk/cuda_gumbel_topk.h"
#include "kernels/sample/cuda_sample_edits.cuh"
#include "kernels/sample/cuda_sample_row.cuh"

namespace espalier {
namespace cuda_sample {
namespace {

struct GumbelPolicy {
  // Warps process tiles separately.
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kWarpSize;
};

struct GumbelParams {
  CudaGumbelTopKInputs in;
  CudaSelectOutputs out;
  float* scores;     // [num_rows, vocab_size]
  float* cum;        // [num_rows]  0; -inf where a row gets no noise
  RawRow* raw_rows;  // [num_rows]
  RowCut* cuts;      // [num_rows]
  void* select;      // scratch of CudaSelect
  Params raw;        // sampling, as it sees the raw rows
  Params processed;  // rows of scratch
};

__device__ bool IsWanted(const GumbelParams& p, int row) {
  return p.in.row_params[row] >= 0 &&
         p.in.select.cum_log_probs[row] > MinusInf();
}

template <typename T>
__device__ RowLogits<T> RawLogits(const GumbelParams& p, int row) {
  const int size = p.in.select.vocab_size;
  return {static_cast<const T*>(p.in.select.logits) + size_t(row) * size, size};
}

// One warp: true if a logit of the row is NaN.
__device__ bool HasNan(const RawTile* tiles, int num_tiles) {
  bool nan = false;
  for (int t = threadIdx.x % kWarpSize; t < num_tiles; t += kWarpSize) {
    nan |= tiles[t].sum != tiles[t].sum;
  }
  return __any_sync(kAllLanes, nan);
}

// One warp per tile of row blockIdx.y. A row with a NaN is written with a NaN
// first.
template <typename T>
__global__ __launch_bounds__(GumbelPolicy::kThreads) void ProcessRows(
    const __grid_constant__ GumbelParams p) {
  LaunchDependents();
  GridDependencyWait();
  const int row = blockIdx.y;
  const int num_tiles = p.raw.num_tiles;
  const int tile = blockIdx.x * GumbelPolicy::kWarps + threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  if (tile >= num_tiles) return;
  const bool wanted = IsWanted(p, row);
  if (tile == 0 && lane == 0) p.cum[row] = wanted ? 0.0f : MinusInf();
  if (!wanted) return;
  const RawTile* const tiles = p.raw.raw + size_t(row) * num_tiles;
  const RawRow raw = SumRawTiles(tiles, num_tiles);
  if (tile == 0 && lane == 0) p.raw_rows[row] = raw;
  const RowLogits<LogitOf<T>> logits = RawLogits<LogitOf<T>>(p, row);
  const int size = logits.vocab_size();
  const bool by_log_prob = p.in.rows[row].domain == ScoreDomain::kLogProbs;
  float* const scores = p.scores + size_t(row) * size;
  const EditList<kIsMasked<T>> edits(p.raw.in, row);
  auto window = EditWindow<kIsMasked<T>>::At(edits, tile * kTileSize);
  constexpr int kEach = 8;
#pragma unroll 1
  for (int begin = tile * kTileSize; begin < (tile + 1) * kTileSize;
       begin += kEach * kWarpSize) {
    const auto token_of = [&](int i) { return begin + lane + i * kWarpSize; };
    float x[kEach];
    logits.Logits(token_of, x);
    if (by_log_prob) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = raw.LogProb(x[i]);
    }
    if (edits.any()) window.Apply(begin + kEach * kWarpSize, token_of, x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (token_of(i) < size) scores[token_of(i)] = x[i];
    }
  }
  if (tile != 0) return;
  const bool nan = HasNan(tiles, num_tiles);
  __syncwarp();
  if (nan && lane == 0) scores[0] = NAN;
}

// Returns the value of a token whose edited score is `score`; -inf if a filter
// drops it.
__device__ float ValueOf(float score, TokenId token, const RowCut& cut,
                         ScoreDomain domain, float temperature) {
  const bool by_log_prob = domain == ScoreDomain::kLogProbs;
  if (cut.token < 0 || !(score > MinusInf())) return MinusInf();
  if (cut.is_greedy) {
    if (token != cut.token) return MinusInf();
    return by_log_prob ? score : 0.0f;
  }
  const float distance = score == cut.max ? 0.0f : __fsub_rn(cut.max, score);
  if (__float_as_uint(distance) > cut.cut) return MinusInf();
  if (cut.is_typical) {
    const float exponent = __fmul_rn(distance, cut.scale);
    const float rank = fabsf(__fsub_rn(exponent, cut.mean));
    if (__float_as_uint(rank) > cut.typical_cut) return MinusInf();
  }
  if (by_log_prob) return __fdiv_rn(score, temperature);
  return -__fdiv_rn(distance, temperature) - cut.log_total;
}

// Threads of row blockIdx.y process pairs of tokens, which share random words.
// A PDL barrier (base/grid_dependency.h), because CudaSelect reads `cum` early,
// which ProcessRows writes.
__global__ __launch_bounds__(GumbelPolicy::kThreads) void AddGumbelNoise(
    const __grid_constant__ GumbelParams p) {
  GridDependencyWait();
  LaunchDependents();
  const int row = blockIdx.y;
  if (!IsWanted(p, row)) return;
  const int size = p.in.select.vocab_size;
  float* const scores = p.scores + size_t(row) * size;
  const SamplingParams& params = p.in.params[p.in.row_params[row]];
  const CudaGumbelRow own = p.in.rows[row];
  const RowCut cut = p.cuts[row];
  const RandomKey key = GumbelKey(params.seed, own.rank, own.position);
  for (int pair = blockIdx.x * GumbelPolicy::kThreads + threadIdx.x;
       2 * pair < size; pair += gridDim.x * GumbelPolicy::kThreads) {
    float values[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = 2 * pair + i;
      values[i] = token < size ? ValueOf(scores[token], token, cut, own.domain,
                                         params.temperature)
                               : MinusInf();
    }
    const bool any = values[0] > MinusInf() || values[1] > MinusInf();
    RandomWords random;
    if (any) random = WordsAt(key, static_cast<uint32_t>(pair));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = 2 * pair + i;
      if (token >= size) continue;
      float score = values[i];
      if (score > MinusInf()) {
        score =
            static_cast<float>(score + GumbelOf(GumbelUniform(random, token)));
      }
      scores[token] = score;
    }
  }
}

// One warp per row: computes the values of the chosen tokens from the raw row.
template <typename T>
__global__ __launch_bounds__(GumbelPolicy::kThreads) void TakeValues(
    const __grid_constant__ GumbelParams p) {
  LaunchDependents();
  GridDependencyWait();
  const int row = blockIdx.x * GumbelPolicy::kWarps + threadIdx.x / kWarpSize;
  if (row >= p.in.select.num_rows || !IsWanted(p, row)) return;
  const int group_idx = p.in.select.row_groups[row];
  if (group_idx < 0) return;
  const CudaSelectGroup group = p.in.select.groups[group_idx];
  Candidate* const candidates = p.out.candidates + group.first_candidate;
  const int lane = threadIdx.x % kWarpSize;
  const RowCut cut = p.cuts[row];
  if (cut.token == kNotANumber) {
    if (lane != 0 || group.num_candidates < 1) return;
    candidates[0] = {0, kNotANumber, 0.0f};
    p.out.num_candidates[group_idx] = 1;
    return;
  }
  const RowLogits<LogitOf<T>> logits = RawLogits<LogitOf<T>>(p, row);
  const RawRow raw = p.raw_rows[row];
  const ScoreDomain domain = p.in.rows[row].domain;
  const float temperature = p.in.params[p.in.row_params[row]].temperature;
  const EditList<kIsMasked<T>> edits(p.raw.in, row);
  // A group without requested candidates has a stale count.
  const int count = min(group.num_candidates, p.out.num_candidates[group_idx]);
  for (int i = lane; i < count; i += kWarpSize) {
    const int token = candidates[i].token;
    float score = logits.Logit(token);
    if (domain == ScoreDomain::kLogProbs) score = raw.LogProb(score);
    score = edits.Edited(token, score);
    candidates[i].cum_log_prob =
        ValueOf(score, token, cut, domain, temperature);
  }
}

static_assert(CudaGumbelTopKLayout::kRawRowBytes == sizeof(RawRow));
static_assert(CudaGumbelTopKLayout::kRowCutBytes == sizeof(RowCut));

GumbelParams GumbelParamsAt(const CudaGumbelTopKInputs& inputs,
                            const CudaGumbelTopKLayout& layout, char* base) {
  const CudaSelectInputs& select = inputs.select;
  GumbelParams p = {};
  p.in = inputs;
  p.scores = layout.scores.At<float>(base);
  p.cum = layout.cum.At<float>(base);
  p.raw_rows = layout.raw_rows.At<RawRow>(base);
  p.cuts = layout.cuts.At<RowCut>(base);
  p.select = layout.select.At<char>(base);
  CudaSampleInputs raw;
  raw.dtype = select.dtype;
  raw.num_rows = select.num_rows;
  raw.vocab_size = select.vocab_size;
  raw.max_draws = 1;
  raw.logits = select.logits;
  raw.row_params = inputs.row_params;
  raw.params = inputs.params;
  raw.cum_log_probs = select.cum_log_probs;
  CudaSampleInputs processed = raw;
  raw.row_edits = select.row_edits;
  raw.edits = select.edits;
  raw.masks = select.masks;
  processed.dtype = DType::kFloat32;
  processed.logits = p.scores;
  p.raw = ParamsAt(raw, layout.of_raw_sample, layout.raw_sample.At<char>(base));
  p.processed = ParamsAt(processed, layout.of_processed_sample,
                         layout.processed_sample.At<char>(base));
  return p;
}

absl::Status Enqueue(const GumbelParams& p, const CudaDevice& device,
                     cudaStream_t stream) {
  const unsigned rows = p.in.select.num_rows;
  const LaunchConfig tiles = {
      .grid = dim3(
          (p.raw.num_tiles + GumbelPolicy::kWarps - 1) / GumbelPolicy::kWarps,
          rows),
      .block = dim3(GumbelPolicy::kThreads)};
  const LaunchConfig each = {
      .grid = dim3((rows + GumbelPolicy::kWarps - 1) / GumbelPolicy::kWarps),
      .block = dim3(GumbelPolicy::kThreads)};
  Params unedited = p.raw;  // only its raw sums are used
  unedited.in.row_edits = nullptr;
  RETURN_IF_ERROR(ReadRows(unedited, device, stream));
  // ProcessRows writes `cum`. Only CudaSelect reads it early, after the barrier
  // below; the kernels in between read older data early.
  RETURN_IF_ERROR(ByRowType(p.raw.in, [&]<typename T>() {
    return Launch(ProcessRows<T>, tiles, stream, p);
  }));
  RETURN_IF_ERROR(ReadRows(p.processed, device, stream));
  RETURN_IF_ERROR(FindRowCuts(p.processed, p.cuts, stream));
  LaunchConfig noise = tiles;
  noise.dependency = GridDependency::kBarrier;
  RETURN_IF_ERROR(Launch(AddGumbelNoise, noise, stream, p));
  CudaSelectInputs scores = p.in.select;
  scores.dtype = DType::kFloat32;
  scores.logits = p.scores;
  scores.cum_log_probs = p.cum;
  scores.row_edits = nullptr;
  RETURN_IF_ERROR(CudaSelect(scores, p.out, p.select, device, stream));
  return ByRowType(p.raw.in, [&]<typename T>() {
    return Launch(TakeValues<T>, each, stream, p);
  });
}

}  // namespace
}  // namespace cuda_sample

namespace {

// Returns the layout of a call's scratch.
CudaGumbelTopKLayout LayoutOf(const CudaGumbelTopKInputs& inputs) {
  return {BoundsOf(inputs.select), inputs.select.row_edits != nullptr};
}

}  // namespace

size_t CudaGumbelTopKScratchBytes(const CudaGumbelTopKInputs& inputs) {
  return LayoutOf(inputs).layout.bytes();
}

absl::Status CudaGumbelTopK(const CudaGumbelTopKInputs& inputs,
                            const CudaSelectOutputs& outputs, void* scratch,
                            const CudaDevice& device, cudaStream_t stream) {
  cuda_sample::GumbelParams p = cuda_sample::GumbelParamsAt(
      inputs, LayoutOf(inputs), static_cast<char*>(scratch));
  p.out = outputs;
  RETURN_IF_ERROR(cuda_sample::CheckShapes(p.raw.in));
  return cuda_sample::Enqueue(p, device, stream);
}

}  // namespace espalier
