#include "base/status.h"
#include "base/thread_pool.h"
#include "examples/cli/backend.h"
#include "exec_request/model_executor.h"
#include "model/llama_model.h"

namespace espalier::cli {
namespace {

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(int num_threads) : threads_(num_threads) {}

  absl::Status LoadModel(const std::string& directory,
                         const BackendOptions& options) {
    const LlamaOptions llama = {.page_size = options.page_size,
                                .kv_cache_bytes = options.kv_cache_bytes};
    ASSIGN_OR_RETURN(model_, LlamaModel::Load(directory, llama, &threads_));
    steps_ = std::make_unique<ModelExecutor>(model_.get(), &threads_);
    return absl::OkStatus();
  }

  StepExecutor& steps() override { return *steps_; }

 private:
  ThreadPool threads_;
  std::unique_ptr<LlamaModel> model_;
  std::unique_ptr<ModelExecutor> steps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> LoadCpuBackend(
    const std::string& directory, const BackendOptions& options) {
  auto backend = std::make_unique<CpuBackend>(options.num_threads);
  RETURN_IF_ERROR(backend->LoadModel(directory, options));
  return backend;
}

}  // namespace espalier::cli
