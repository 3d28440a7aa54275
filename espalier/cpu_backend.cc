#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/option_error.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "espalier/backend.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"

namespace espalier {
namespace {

class CpuBackend : public Backend {
 public:
  absl::Status LoadModel(const std::string& directory,
                         const BackendOptions& options) {
    const TransformerOptions transformer = {
        .page_size = options.page_size,
        .kv_cache_bytes = options.kv_cache_bytes,
        .host_cache_bytes = options.host_cache_bytes,
        .weights = options.weights,
        .progress = options.load_progress};
    ModelExecutorOptions bounds = {.max_beams = options.max_beams,
                                   .max_candidates = options.max_candidates,
                                   .max_score_edits = options.max_score_edits};
    ASSIGN_OR_RETURN(const auto threads,
                     ThreadPool::Create(options.num_threads));
    ASSIGN_OR_RETURN(auto model,
                     TransformerModel::Load(directory, transformer, threads));
    if (!options.draft_model.empty()) {
      // A small model's keys and values are small.
      TransformerOptions draft = transformer;
      // Its steps last as long as reading its weights takes, and any draft will
      // do: fewer bits cost next to no acceptance, but half the time.
      if (draft.weights == WeightFormat::kAsStored) {
        draft.weights = WeightFormat::kInt8;
      }
      draft.kv_cache_bytes =
          std::max<int64_t>(options.kv_cache_bytes / 4, int64_t{1} << 20);
      draft.host_cache_bytes = 0;
      auto loaded = TransformerModel::Load(options.draft_model, draft, threads);
      if (!loaded.ok()) return AnnotateOption(loaded.status(), "draft_model");
      bounds.draft_model = *std::move(loaded);
    }
    ASSIGN_OR_RETURN(steps_,
                     ModelExecutor::Create(std::move(model), threads, bounds));
    return absl::OkStatus();
  }

  std::shared_ptr<StepExecutor> steps() override { return steps_; }

 private:
  std::shared_ptr<ModelExecutor> steps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> LoadCpuBackend(
    const std::string& directory, const BackendOptions& options) {
  auto backend = std::make_unique<CpuBackend>();
  RETURN_IF_ERROR(backend->LoadModel(directory, options));
  return backend;
}

}  // namespace espalier
