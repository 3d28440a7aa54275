#include "absl/strings/str_format.h"
#include "base/cuda.h"
#include "base/status.h"
#include "base/wording.h"
#include "espalier/backend.h"
#include "executor/cuda/cuda_executor.h"
#include "model/cuda/cuda_llama.h"

namespace espalier {
namespace {

class CudaBackend : public Backend {
 public:
  absl::Status LoadModel(const std::string& directory,
                         const BackendOptions& options) {
    ASSIGN_OR_RETURN(device_, CudaDevice::Open(options.device.ordinal));
    const CudaLlamaOptions llama = {.page_size = options.page_size,
                                    .kv_cache_bytes = options.kv_cache_bytes,
                                    .dtype = options.dtype,
                                    .max_tokens = options.max_step_tokens,
                                    .max_logits = options.max_beams};
    ASSIGN_OR_RETURN(auto model, CudaLlama::Load(directory, llama, device_));
    ASSIGN_OR_RETURN(steps_, CudaExecutor::Create(std::move(model)));
    return absl::OkStatus();
  }

  std::shared_ptr<StepExecutor> steps() override { return steps_; }

  std::string FormatFigures() const override {
    const CudaExecutorFigures figures = steps_->figures();
    return absl::StrFormat(
        "on %s: %s, %s of %s; busy %.3f s, idle "
        "between steps %.3f s (median gap %.1f us)\n%s\n",
        device_.name, Pluralize(figures.num_steps, "step"),
        Pluralize(figures.num_graph_launches, "graph launch", "graph launches"),
        Pluralize(figures.num_graphs, "graph"),
        absl::ToDoubleSeconds(figures.busy),
        absl::ToDoubleSeconds(figures.idle),
        absl::ToDoubleMicroseconds(figures.median_gap),
        FormatMemory(figures.memory));
  }

 private:
  CudaDevice device_;
  std::shared_ptr<CudaExecutor> steps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(
    const std::string& directory, const BackendOptions& options) {
  auto backend = std::make_unique<CudaBackend>();
  RETURN_IF_ERROR(backend->LoadModel(directory, options));
  return backend;
}

bool HasCudaDevice(int ordinal) { return CudaDevice::Open(ordinal).ok(); }

}  // namespace espalier
