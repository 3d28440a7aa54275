// Finds the ends of drafts and samples the tokens that follow (cuda_verify.cu).
#include "kernels/verify/cuda_verify_answer.cuh"

namespace espalier::cuda_sample {
namespace {

struct RecoverPolicy {
  // Warps process tiles separately; 16 blocks a sequence of 128,256 tokens.
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kWarpSize;
};

// The unit of max(p - q, 0): a row's sum fits in a Mass.
constexpr float kResidualUnit = 0x1p50f;
// Tokens that a warp has in flight.
constexpr int kLoads = 8;

// One row of the two whose difference is sampled.
template <typename T>
struct RowDensity {
  RowLogits<LogitOf<T>> logits;
  EditList<kIsMasked<T>> edits;
  RowCut cut;
  float of_weight = 0;  // makes a probability of it; 0: the row has none

  RowDensity() : logits(nullptr, 1) {}
  __device__ RowDensity(const VerifyParams& p, int row)
      : logits(p.sample.LogitsOf<LogitOf<T>>(row), p.in.vocab_size),
        edits(p.sample.in, row),
        cut(p.verdicts[row].cut),
        of_weight(static_cast<float>(1 / p.verdicts[row].total)) {}

  // One warp: `kSize` tokens a lane, ascending from `begin` to `end`.
  template <int kSize, typename TokenOf>
  __device__ void Probabilities(int begin, int end, const TokenOf& token_of,
                                float (&x)[kSize]) const {
    logits.Logits(token_of, x);
    if (edits.any()) {
      auto window = EditWindow<kIsMasked<T>>::At(edits, begin);
      window.Apply(end, token_of, x);
    }
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      x[i] = of_weight * WeightIn(cut, x[i], token_of(i));
    }
  }
};

// max(p - q, 0) of a row.
template <typename T>
class Residual {
 public:
  __device__ Residual(const VerifyParams& p, const CudaVerifySequence& sequence,
                      int index)
      : p_(p, sequence.first_row + index),
        // Without a draft row this one is not read.
        q_(p, sequence.first_draft_row < 0 ? sequence.first_row + index
                                           : sequence.first_draft_row + index),
        draft_(DraftAt(p, sequence, index)),
        has_row_(sequence.first_draft_row >= 0) {}

  // Uses p alone from now on.
  __device__ void DropDraft() { has_draft_ = false; }

  __device__ float RawLogit(TokenId token) const {
    return p_.logits.Logit(token);
  }

  // One warp: kSize tokens a lane from `begin` on, lanes side by side.
  template <int kSize>
  __device__ void Masses(int begin, Mass (&masses)[kSize]) const {
    const auto token_of = [begin](int i) {
      return begin + Lane() + i * kWarpSize;
    };
    const int end = begin + kSize * kWarpSize;
    float p[kSize];
    float q[kSize] = {};
    p_.Probabilities(begin, end, token_of, p);
    if (has_draft_ && has_row_) q_.Probabilities(begin, end, token_of, q);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (has_draft_ && !has_row_ && token_of(i) == draft_) q[i] = 1.0f;
      masses[i] = __float2ull_rz(fmaxf(p[i] - q[i], 0.0f) * kResidualUnit);
    }
  }

  __device__ Mass MassOfTile(int tile) const {
    Mass sum = 0;
#pragma unroll 1
    for (int begin = tile * kTileSize; begin < (tile + 1) * kTileSize;
         begin += kLoads * kWarpSize) {
      Mass masses[kLoads];
      Masses(begin, masses);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) sum += masses[i];
    }
    return SumOverWarp(sum);
  }

 private:
  RowDensity<T> p_;
  RowDensity<T> q_;
  TokenId draft_;
  bool has_row_;
  bool has_draft_ = true;
};

struct RecoverShared {
  bool is_last;
  int tile;     // that the draw ends in
  Mass target;  // from its start
  Mass of_warps[RecoverPolicy::kWarps];
  TokenId token;
};

// The first warp: returns the sum of all tiles' masses; 0 without tiles.
__device__ Mass SumOfTiles(const Mass* masses, int num_tiles) {
  Mass sum = 0;
  for (int t = Lane(); t < num_tiles; t += kWarpSize) sum += __ldcg(masses + t);
  return SumOverWarp(sum);
}

// The first warp: finds the tile in which sums exceed `target`.
__device__ void FindTile(const Mass* masses, int num_tiles, Mass target,
                         RecoverShared& shared) {
  Mass before = 0;
#pragma unroll 1
  for (int first = 0; first < num_tiles; first += kWarpSize) {
    const int tile = first + Lane();
    const Mass own = tile < num_tiles ? __ldcg(masses + tile) : 0;
    const Mass up_to = before + WarpInclusiveSum(own);
    if (up_to - own <= target && target < up_to) {
      shared.tile = tile;
      shared.target = target - (up_to - own);
    }
    before = __shfl_sync(kAllLanes, up_to, kWarpSize - 1);
  }
}

// One block: returns the token of the tile at which sums exceed the target.
template <typename T>
__device__ void FindToken(const Residual<T>& residual, RecoverShared& shared) {
  constexpr int kEach = kTileSize / RecoverPolicy::kThreads;
  const int begin = shared.tile * kTileSize + Warp() * kEach * kWarpSize;
  Mass masses[kEach];
  residual.Masses(begin, masses);
  Mass sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += masses[i];
  sum = SumOverWarp(sum);
  if (Lane() == 0) shared.of_warps[Warp()] = sum;
  __syncthreads();
  Mass before = 0;
  for (int w = 0; w < Warp(); ++w) before += shared.of_warps[w];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const Mass up_to = before + WarpInclusiveSum(masses[i]);
    if (up_to - masses[i] <= shared.target && shared.target < up_to) {
      shared.token = begin + Lane() + i * kWarpSize;
    }
    before = __shfl_sync(kAllLanes, up_to, kWarpSize - 1);
  }
  __syncthreads();
}

// One block: returns the token that replaces a rejected draft, to all threads,
// once all tiles are summed.
template <typename T>
__device__ TokenId Recover(Residual<T>& residual, Mass* masses, int num_tiles,
                           double uniform, RecoverShared& shared) {
  Mass total = SumOfTiles(masses, num_tiles);
  __syncthreads();  // all warps have read them
  if (total == 0) {
    // p and q differ only by rounding: uses p alone. Very rare.
    residual.DropDraft();
    for (int t = Warp(); t < num_tiles; t += RecoverPolicy::kWarps) {
      const Mass sum = residual.MassOfTile(t);
      if (Lane() == 0) masses[t] = sum;
    }
    __threadfence();
    __syncthreads();
    total = SumOfTiles(masses, num_tiles);
  }
  if (Warp() == 0) FindTile(masses, num_tiles, Target(uniform, total), shared);
  __syncthreads();
  FindToken(residual, shared);
  return shared.token;
}

// The blocks of row blockIdx.y divide a sequence's tiles.
template <typename T>
__global__ __launch_bounds__(RecoverPolicy::kThreads) void RecoverRows(
    const __grid_constant__ VerifyParams p) {
  LaunchDependents();
  GridDependencyWait();
  const int sequence_idx = static_cast<int>(blockIdx.y);
  if (sequence_idx >= *p.in.num_sequences) return;
  const CudaVerifySequence sequence = p.in.sequences[sequence_idx];
  const DraftEnd end = FindEnd(p, sequence);
  const RowVerdict& last = p.verdicts[sequence.first_row + end.num_accepted];
  if (!end.recovers || last.recovered != kNotLeader) {
    if (blockIdx.x != 0) return;
    return AnswerAtEnd(p, sequence_idx, sequence, end);
  }
  __shared__ RecoverShared shared;
  Residual<T> residual(p, sequence, end.num_accepted);
  const int num_tiles = p.sample.num_tiles;
  Mass* const masses = p.tile_masses + size_t(sequence_idx) * num_tiles;
  const int tile =
      static_cast<int>(blockIdx.x) * RecoverPolicy::kWarps + Warp();
  if (tile < num_tiles) {
    const Mass sum = residual.MassOfTile(tile);
    if (Lane() == 0) masses[tile] = sum;
  }
  __threadfence();  // before the counter is incremented
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.is_last = atomicAdd(p.arrivals + sequence_idx, 1u) == gridDim.x - 1;
    __threadfence();  // before others' are read
  }
  __syncthreads();
  if (!shared.is_last) return;
  const double uniform =
      NoiseOf(p, sequence, end.num_accepted, RandomPurpose::kRecover);
  const TokenId token = Recover(residual, masses, num_tiles, uniform, shared);
  Answer(p, sequence_idx, sequence, end.num_accepted, token,
         last.raw.LogProb(residual.RawLogit(token)));
}

}  // namespace

absl::Status AcceptAndRecover(const VerifyParams& p, cudaStream_t stream) {
  const LaunchConfig shape = {
      .grid = dim3((p.sample.num_tiles + RecoverPolicy::kWarps - 1) /
                       RecoverPolicy::kWarps,
                   p.in.max_sequences),
      .block = dim3(RecoverPolicy::kThreads)};
  return ByRowType(p.sample.in, [&]<typename T>() {
    return Launch(RecoverRows<T>, shape, stream, p);
  });
}

}  // namespace espalier::cuda_sample
