#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/field_error.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "espalier/backend.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "model/transformer_weights.h"

namespace espalier {
namespace {

struct CpuWeights : ModelWeights {
  using ModelWeights::ModelWeights;

  std::shared_ptr<const TransformerWeights> model;
  std::shared_ptr<const TransformerWeights> draft;  // null: none
};

class CpuWeightUpdater : public WeightUpdater {
 public:
  CpuWeightUpdater(std::string directory,
                   std::shared_ptr<TransformerModel> model,
                   std::shared_ptr<ThreadPool> threads)
      : directory_(std::move(directory)),
        model_(std::move(model)),
        threads_(std::move(threads)) {}

  absl::StatusOr<Apply> Prepare(const WeightUpdate& update) override {
    const std::shared_ptr<const TransformerWeights> current = model_->weights();
    ASSIGN_OR_RETURN(auto checkpoint, UpdatedCheckpoint(current->checkpoint,
                                                        directory_, update));
    ASSIGN_OR_RETURN(TransformerWeights weights,
                     LoadTransformerWeights(
                         std::move(checkpoint), current->config,
                         {.format = current->format, .pool = threads_.get()}));
    auto shared =
        std::make_shared<const TransformerWeights>(std::move(weights));
    return [model = model_, weights = std::move(shared)]() mutable {
      model->SetWeights(std::move(weights));
      return absl::OkStatus();
    };
  }

 private:
  const std::string directory_;
  const std::shared_ptr<TransformerModel> model_;
  const std::shared_ptr<ThreadPool> threads_;
};

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
    const auto* loaded =
        static_cast<const CpuWeights*>(options.loaded_weights.get());
    auto weights = std::make_shared<CpuWeights>(directory, options);
    ASSIGN_OR_RETURN(
        std::shared_ptr<TransformerModel> model,
        loaded == nullptr
            ? TransformerModel::Load(directory, transformer, threads)
            : TransformerModel::Create(loaded->model, transformer, threads));
    weights->model = model->weights();
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
      auto drafting =
          loaded == nullptr
              ? TransformerModel::Load(options.draft_model, draft, threads)
              : TransformerModel::Create(loaded->draft, draft, threads);
      if (!drafting.ok()) {
        return AnnotateOption(drafting.status(), "draft_model");
      }
      weights->draft = (*drafting)->weights();
      bounds.draft_model = *std::move(drafting);
    }
    weights_ = std::move(weights);
    updater_ = std::make_shared<CpuWeightUpdater>(directory, model, threads);
    ASSIGN_OR_RETURN(steps_,
                     ModelExecutor::Create(std::move(model), threads, bounds));
    return absl::OkStatus();
  }

  std::shared_ptr<StepExecutor> steps() override { return steps_; }
  std::shared_ptr<const ModelWeights> weights() const override {
    return weights_;
  }
  std::shared_ptr<WeightUpdater> weight_updater() override { return updater_; }

 private:
  std::shared_ptr<CpuWeightUpdater> updater_;
  std::shared_ptr<ModelExecutor> steps_;
  std::shared_ptr<const CpuWeights> weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> LoadCpuBackend(
    const std::string& directory, const BackendOptions& options) {
  auto backend = std::make_unique<CpuBackend>();
  RETURN_IF_ERROR(backend->LoadModel(directory, options));
  return backend;
}

}  // namespace espalier
