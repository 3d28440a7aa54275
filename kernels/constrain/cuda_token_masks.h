// Token masks on the device: the masks of the states of a step, one launch
// before the forward pass, so that selection and sampling find them. Nothing is
// kept of tokens and states but the tables of the constraints, which are
// uploaded once; the bytes of each token are walked along the automaton.
//
// Its bits equal those of reference::TokenMask.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/constraint_tables.h"
#include "base/cuda.h"

namespace espalier {

// One mask to make.
struct CudaMaskJob {
  int constraint = 0;  // its tables
  int32_t state = 0;
  int32_t room = 0;  // tokens; none is legal without
  int mask = 0;      // its place; no two jobs have one
};

struct CudaMaskInputs {
  // Host values: they size the launch.
  int vocab_size = 0;
  int max_jobs = 0;

  // Device memory.
  const ConstraintTables* constraints = nullptr;  // with device pointers
  const int* num_jobs = nullptr;                  // [1]
  const CudaMaskJob* jobs = nullptr;              // [max_jobs]
};

// Bytes that must follow the last token's in `TokenTexts::bytes` of tables on
// the device: texts are read in words.
inline constexpr int kTokenTextPadding = 20;

// Writes the mask of each job, NumMaskWords(vocab_size) words from
// masks[job.mask * NumMaskWords(vocab_size)] on. Enqueues on `stream` and
// returns; never allocates, may be captured.
// REQUIRES: all tables have this vocab_size, and texts that begin at multiples
// of 4 bytes and are followed by kTokenTextPadding bytes.
// Errors: kInvalidArgument if a size is below 1; kInternal if the launch is
// refused.
absl::Status CudaMakeTokenMasks(const CudaMaskInputs& inputs, uint32_t* masks,
                                const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier
