// What a step reads of a batch, array by array and by its own account of which
// steps read which: an oracle for the list that sending walks
// (cuda_batch_arrays.h). Device memory is read through a function, so that the
// same holds for a device and for words of the host in its place.
#pragma once

#include <cstddef>
#include <functional>

#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/batch/cuda_step_memory.h"

namespace espalier::testing {

// Copies `bytes` from device memory.
using ReadDevice =
    std::function<void(const void* from, void* to, size_t bytes)>;

// Whether the step makes the edits of that row of logits.
bool IsMadeByTheStep(const CudaInputBatch& batch, int logits_row);

// What is the device's to compute, or not read, is not compared.
void ExpectBatch(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                 const ReadDevice& read);

// That the work lists are those for the batch, and whether some query of each
// has partial results.
void ExpectWork(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                const CudaAttentionShape& shape, const CudaStepLimits& limits,
                const CudaDevice& device, const ReadDevice& read,
                bool has_partials, bool has_cross_partials);

}  // namespace espalier::testing
