// Engines on NVIDIA GPUs, where the library is built for them: the interface
// that a caller's own model on a GPU implements, the transformers that load
// from a directory, and the executor that runs steps of either.
#pragma once

#include "base/cuda_pinned_memory.h"
#include "base/cuda_resources.h"
#include "exec_request/cuda_model.h"
#include "executor/cuda/cuda_executor.h"
#include "model/cuda/cuda_transformer.h"
