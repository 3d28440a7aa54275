// Masks are made tile by tile: a block has the bytes of 1,024 tokens in
// registers and makes that tile of one mask after the other. The states after
// each first byte are found once a mask and tile, so a token with an illegal
// first byte, as nearly all have in a narrow state, costs one lookup in shared
// memory.
#include <algorithm>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/constrain/constraint_state.h"
#include "kernels/constrain/cuda_token_masks.h"
#include "kernels/constrain/token_masks.h"

namespace espalier {
namespace {

constexpr int kWarpSize = 32;

struct MaskPolicy {
  // A thread for each byte, and eight warps of four words.
  static constexpr int kThreads = 256;
  static constexpr int kWordsPerWarp = 4;
  // Masks divide the blocks of a tile, up to as many as fill the device.
  static constexpr int kBlocksPerMultiprocessor = 4;
};
static_assert(MaskPolicy::kThreads / kWarpSize * MaskPolicy::kWordsPerWarp *
                  kWarpSize ==
              kMaskTileTokens);

// The text of a token, its first bytes in registers.
struct TokenHead {
  static constexpr int kWords = 4;
  uint32_t words[kWords];
  const uint8_t* bytes;
  int length;

  TokenHead() = default;
  __device__ TokenHead(const TokenTexts& texts, int token, int vocab_size) {
    length = 0;
    bytes = texts.bytes;
    if (token >= vocab_size) return;
    const int32_t begin = texts.indptr[token];
    length = texts.indptr[token + 1] - begin;
    bytes += begin;
    const auto* const from =
        reinterpret_cast<const uint32_t*>(texts.bytes) + begin / 4;
    uint32_t last = from[0];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint32_t more = from[i + 1];
      words[i] = __funnelshift_r(last, more, begin % 4 * 8);
      last = more;
    }
  }
};

struct MaskShared {
  uint8_t classes[256];
  int32_t after_first[256];  // the state after one byte
};

// Returns the state of the automaton after a text; negative if there is none.
// REQUIRES: the text is not empty.
__device__ int32_t Walk(const TokenHead& head, const ConstraintTables& tables,
                        const MaskShared& shared) {
  int32_t state = shared.after_first[head.words[0] & 0xFF];
  const auto step = [&](uint32_t byte) {
    state = tables.next[state * tables.num_classes + shared.classes[byte]];
  };
#pragma unroll
  for (int i = 0; i < TokenHead::kWords; ++i) {
    if (state < 0 || head.length <= 4 * i) return state;
#pragma unroll
    for (int j = i == 0 ? 1 : 0; j < 4; ++j) {
      if (state >= 0 && 4 * i + j < head.length) {
        step(head.words[i] >> (8 * j) & 0xFF);
      }
    }
  }
#pragma unroll 1
  for (int i = 4 * TokenHead::kWords; i < head.length && state >= 0; ++i) {
    step(head.bytes[i]);
  }
  return state;
}

// True if the token is legal, end ids left out.
__device__ bool IsLegal(const TokenHead& head, const ConstraintTables& tables,
                        const CudaMaskJob& job, int token,
                        const MaskShared& shared) {
  int32_t next = kNoConstraintState;
  if (head.length > 0) {
    next = Walk(head, tables, shared);
  } else if (job.state == tables.num_states && token < tables.vocab_size &&
             IsDroppedSpace(tables, token)) {
    next = tables.num_states + 1;
  }
  return next >= 0 && MinTokens(tables, next) <= job.room - 1;
}

// Returns the bits of the end ids that are in a word.
__device__ uint32_t EndBits(const ConstraintTables& tables, int first_token) {
  uint32_t bits = 0;
  for (int i = 0; i < tables.num_end_ids; ++i) {
    const unsigned bit = tables.end_ids[i] - first_token;
    if (bit < 32) bits |= 1u << bit;
  }
  return bits;
}

__global__ __launch_bounds__(MaskPolicy::kThreads) void MakeTokenMasks(
    const CudaMaskInputs in, uint32_t* masks) {
  __shared__ MaskShared shared;
  LaunchDependents();
  GridDependencyWait();
  const int num_jobs = *in.num_jobs;
  const int lane = threadIdx.x % kWarpSize;
  const int first_word =
      static_cast<int>(blockIdx.x) * (kMaskTileTokens / 32) +
      static_cast<int>(threadIdx.x) / kWarpSize * MaskPolicy::kWordsPerWarp;
  TokenHead heads[MaskPolicy::kWordsPerWarp];
  const uint8_t* loaded = nullptr;  // the texts that they are of
  for (int j = blockIdx.y; j < num_jobs; j += gridDim.y) {
    const CudaMaskJob job = in.jobs[j];
    const ConstraintTables tables = in.constraints[job.constraint];
    uint32_t* const mask =
        masks + size_t(job.mask) * NumMaskWords(in.vocab_size);
    const bool has_tokens = HasTokens(tables, job.state) && job.room >= 1;
    if (!has_tokens) {
      if (lane < MaskPolicy::kWordsPerWarp) mask[first_word + lane] = 0;
      continue;
    }
    const TokenTexts texts =
        IsFirstToken(tables, job.state) ? tables.first : tables.inside;
    if (texts.bytes != loaded) {
      loaded = texts.bytes;
#pragma unroll
      for (int w = 0; w < MaskPolicy::kWordsPerWarp; ++w) {
        heads[w] =
            TokenHead(texts, (first_word + w) * 32 + lane, in.vocab_size);
      }
    }
    __syncthreads();  // the last mask is made
    const int byte_class = tables.classes[threadIdx.x];
    shared.classes[threadIdx.x] = byte_class;
    shared.after_first[threadIdx.x] =
        tables.next[AutomatonState(tables, job.state) * tables.num_classes +
                    byte_class];
    __syncthreads();
    const bool may_end = AcceptsText(tables, job.state);
#pragma unroll
    for (int w = 0; w < MaskPolicy::kWordsPerWarp; ++w) {
      const int first_token = (first_word + w) * 32;
      uint32_t word = __ballot_sync(
          0xFFFFFFFFu,
          IsLegal(heads[w], tables, job, first_token + lane, shared));
      if (lane != 0) continue;
      if (may_end) word |= EndBits(tables, first_token);
      mask[first_word + w] = word;
    }
  }
}

}  // namespace

absl::Status CudaMakeTokenMasks(const CudaMaskInputs& inputs, uint32_t* masks,
                                const CudaDevice& device, cudaStream_t stream) {
  if (inputs.vocab_size < 1 || inputs.max_jobs < 1) {
    return InvalidArgument("cannot make up to ", inputs.max_jobs, " masks of ",
                           inputs.vocab_size, " tokens");
  }
  const int num_tiles =
      (inputs.vocab_size + kMaskTileTokens - 1) / kMaskTileTokens;
  const int blocks = std::clamp(
      MaskPolicy::kBlocksPerMultiprocessor * device.num_sms / num_tiles, 1,
      inputs.max_jobs);
  return Launch(MakeTokenMasks,
                {.grid = dim3(num_tiles, static_cast<unsigned>(blocks)),
                 .block = dim3(MaskPolicy::kThreads),
                 .dependency = GridDependency::kWritesEarlyRead},
                stream, inputs, masks);
}

}  // namespace espalier
