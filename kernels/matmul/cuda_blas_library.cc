#include "kernels/matmul/cuda_blas_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "base/status.h"

namespace espalier {
namespace {

absl::StatusOr<void*> Open() {
  const std::string name = Concat("libcublasLt.so.", CUDART_VERSION / 1000);
  if (void* const library = dlopen(name.c_str(), RTLD_NOW)) return library;
  const std::string first_error = dlerror();
  const std::string path = Concat(ESPALIER_CUDA_LIBRARY_DIR "/", name);
  if (void* const library = dlopen(path.c_str(), RTLD_NOW)) return library;
  return FailedPrecondition("cuBLASLt of CUDA ", CUDART_VERSION / 1000,
                            " is needed and cannot be loaded (", first_error,
                            "; ", dlerror(),
                            "); set LD_LIBRARY_PATH to its directory");
}

absl::StatusOr<CudaBlasLibrary> Load() {
  ASSIGN_OR_RETURN(void* const opened, Open());
  CudaBlasLibrary library = {};
  absl::Status status = absl::OkStatus();
  const auto find = [&](const char* name, auto& function) {
    void* const found = dlsym(opened, name);
    if (found == nullptr) {
      status.Update(FailedPrecondition("cuBLASLt has no ", name));
    }
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find("cublasLtCreate", library.create);
  find("cublasLtDestroy", library.destroy);
  find("cublasLtGetStatusString", library.status_string);
  find("cublasLtMatmul", library.matmul);
  find("cublasLtMatmulAlgoCheck", library.algo_check);
  find("cublasLtMatmulAlgoGetHeuristic", library.algo_get_heuristic);
  find("cublasLtMatmulDescCreate", library.desc_create);
  find("cublasLtMatmulDescDestroy", library.desc_destroy);
  find("cublasLtMatmulDescSetAttribute", library.desc_set_attribute);
  find("cublasLtMatrixLayoutCreate", library.layout_create);
  find("cublasLtMatrixLayoutDestroy", library.layout_destroy);
  find("cublasLtMatrixLayoutSetAttribute", library.layout_set_attribute);
  find("cublasLtMatmulPreferenceCreate", library.preference_create);
  find("cublasLtMatmulPreferenceDestroy", library.preference_destroy);
  find("cublasLtMatmulPreferenceSetAttribute",
       library.preference_set_attribute);
  RETURN_IF_ERROR(status);
  return library;
}

}  // namespace

absl::Status CudaBlasLibrary::StatusOf(cublasStatus_t status,
                                       const char* call) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    return ResourceExhausted("not enough memory: cuBLASLt, ", call);
  }
  return Internal("cuBLASLt, ", call, ": ", status_string(status));
}

absl::StatusOr<const CudaBlasLibrary*> CudaBlasLibrary::Get() {
  static const absl::StatusOr<CudaBlasLibrary> library = Load();
  RETURN_IF_ERROR(library.status());
  return &*library;
}

}  // namespace espalier
