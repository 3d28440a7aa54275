// cuBLASLt, loaded when it is first needed. To link a program with it costs
// each process 0.1 s and 100 MB, whatever the process does: so many of its
// pages hold pointers, which the loader writes (CUDA 13).
//
// Thread safety: any threads.
#pragma once

#include <cublasLt.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

// The functions of cuBLASLt that we call.
struct CudaBlasLibrary {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulAlgoGetHeuristic) algo_get_heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_attribute;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set_attribute;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_attribute;

  // What `call`, the name of a function above, has returned.
  // Errors: kResourceExhausted for want of memory, kInternal for the rest.
  absl::Status StatusOf(cublasStatus_t status, const char* call) const;

  // That of the CUDA that this was compiled with: where the system's loader
  // finds it, or else where it lay then. It stays, and so does a failure, as
  // long as the process.
  // Errors: kFailedPrecondition if it is in neither place, or has not all of
  // them.
  static absl::StatusOr<const CudaBlasLibrary*> Get();
};

}  // namespace espalier
