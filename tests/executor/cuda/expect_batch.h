// An oracle for the arrays of a batch that a step reads, independent of the
// list that the uploader uses (cuda_batch_arrays.h). It reads device memory
// through a function, so that it serves a device and host words in its place.
#pragma once

#include <cstddef>
#include <functional>

#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/batch/cuda_step_memory.h"

namespace espalier::testing {

// Copies `bytes` from device memory.
using ReadDevice =
    std::function<void(const void* from, void* to, size_t bytes)>;

// True if the step makes the edits of this row of logits.
bool IsMadeByTheStep(const CudaInputBatch& batch, int logits_row);

// Skips arrays that the device computes or the step does not read.
void ExpectBatch(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                 const ReadDevice& read);

// That the work lists are those for the batch, and whether some query of each
// has partial results.
void ExpectWork(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                const CudaAttentionShape& shape, const CudaStepLimits& limits,
                const CudaDevice& device, const ReadDevice& read,
                bool has_partials, bool has_cross_partials);

}  // namespace espalier::testing
