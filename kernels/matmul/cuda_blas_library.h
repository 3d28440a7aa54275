// cuBLASLt, loaded at first use. Linking a program with it costs each process
// 0.1 s and 100 MB even if it never calls it: the loader writes the many pages
// that hold pointers (CUDA 13).
//
// Thread safety: any threads.
#pragma once

#include <cublasLt.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

// The functions of cuBLASLt that espalier calls.
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

  // Converts the status that the function named `call` returned.
  // Errors: kResourceExhausted for want of memory, kInternal for the rest.
  absl::Status StatusOf(cublasStatus_t status, const char* call) const;

  // Loads the library of the CUDA version that this was compiled with, from the
  // loader's search path or else from its place at build time. Keeps the
  // outcome, success or failure, as long as the process lives.
  // Errors: kFailedPrecondition if it is in neither place or lacks a function.
  static absl::StatusOr<const CudaBlasLibrary*> Get();
};

}  // namespace espalier
