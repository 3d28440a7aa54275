#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/cuda.h"
#include "base/cuda_device_scope.h"
#include "base/cuda_memory.h"
#include "base/field_error.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/wording.h"
#include "espalier/backend.h"
#include "executor/cuda/cuda_blocking_model.h"
#include "executor/cuda/cuda_executor.h"
#include "executor/cuda/draft/cuda_draft_sampler.h"
#include "executor/drafts/draft_model.h"
#include "kernels/constrain/cuda_item_trie_builder.h"
#include "kernels/matmul/cuda_matmul_tuning.h"
#include "model/checkpoint.h"
#include "model/cuda/cuda_transformer.h"
#include "model/cuda/cuda_transformer_weights.h"
#include "model/transformer_tensors.h"

namespace espalier {
namespace {

struct CudaWeights : ModelWeights {
  using ModelWeights::ModelWeights;

  std::shared_ptr<const CudaTransformerWeights> model;
  std::shared_ptr<const CudaTransformerWeights> draft;  // null: none
};

// Uploads weights in place, since graphs of steps have their addresses.
class CudaWeightUpdater : public WeightUpdater {
 public:
  CudaWeightUpdater(std::string directory, int ordinal,
                    std::shared_ptr<const CudaTransformerWeights> weights)
      : directory_(std::move(directory)),
        ordinal_(ordinal),
        weights_(std::move(weights)) {}

  absl::StatusOr<Apply> Prepare(const WeightUpdate& update) override {
    // The model, what it was loaded as, and this.
    constexpr int kOwnUses = 3;
    if (weights_.use_count() > kOwnUses) {
      return FailedPrecondition(
          "another generator uses the weights (loaded_weights), which are ",
          "replaced in place on a GPU");
    }
    if (checkpoint_ == nullptr) {
      ASSIGN_OR_RETURN(Checkpoint opened, Checkpoint::Open(directory_));
      checkpoint_ = std::make_shared<const Checkpoint>(std::move(opened));
    }
    ASSIGN_OR_RETURN(auto checkpoint,
                     UpdatedCheckpoint(checkpoint_, directory_, update));
    ASSIGN_OR_RETURN(TransformerTensors tensors,
                     FindTransformerTensors(*checkpoint, weights_->config));
    return [this, checkpoint = std::move(checkpoint),
            tensors = std::move(tensors)]() mutable -> absl::Status {
      ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                       CudaDeviceScope::Enter(ordinal_));
      RETURN_IF_ERROR(UploadTransformerTensors(tensors, *weights_));
      checkpoint_ = std::move(checkpoint);
      return absl::OkStatus();
    };
  }

 private:
  const std::string directory_;
  const int ordinal_;
  const std::shared_ptr<const CudaTransformerWeights> weights_;
  // The source of the weights; null until the first update.
  std::shared_ptr<const Checkpoint> checkpoint_;
};

// Returns the trie of items as a device builds it.
// Errors: as CudaBuildItemTrie and base/cuda.h.
absl::StatusOr<ItemTrieArrays> BuildItemTrieOn(int ordinal,
                                               const TokenLists& items) {
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(ordinal));
  ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  // Half of the memory is left to the steps that run meanwhile.
  RETURN_IF_ERROR(CheckFreeDeviceMemory(
      "building a catalogue of items",
      2 * (28 * items.tokens.size() + 36 * items.ends.size())));
  return CudaBuildItemTrie(items.tokens, items.ends, stream.get());
}

class CudaBackend : public Backend {
 public:
  absl::Status LoadModel(const std::string& directory,
                         const BackendOptions& options) {
    ASSIGN_OR_RETURN(device_, CudaDevice::Open(options.device.ordinal));
    const CudaTransformerOptions transformer = {
        .page_size = options.page_size,
        .kv_cache_bytes = options.kv_cache_bytes,
        .dtype = options.dtype,
        .weights = options.weights,
        .max_tokens = options.max_step_tokens,
        .max_logits = options.max_beams};
    const auto* loaded =
        static_cast<const CudaWeights*>(options.loaded_weights.get());
    weights_ = std::make_shared<CudaWeights>(directory, options);
    ASSIGN_OR_RETURN(
        std::shared_ptr<CudaTransformer> model,
        loaded == nullptr
            ? CudaTransformer::Load(directory, transformer, device_)
            : CudaTransformer::Create(loaded->model, transformer, device_));
    weights_->model = model->weights();
    updater_ = std::make_shared<CudaWeightUpdater>(directory, device_.ordinal,
                                                   model->weights());
    if (loaded == nullptr && options.load_note != nullptr) {
      const std::string note = UntunedMatMulNote(device_);
      if (!note.empty()) options.load_note(note);
    }
    std::unique_ptr<DraftModel> draft;
    if (!options.draft_model.empty()) {
      ASSIGN_OR_RETURN(draft, LoadDraftModel(options, transformer));
    }
    ASSIGN_OR_RETURN(executor_,
                     CudaExecutor::Create(
                         std::move(model),
                         {.host_cache_bytes =
                              options.preempted_pages == PreemptedPages::kDrop
                                  ? 0
                                  : options.host_cache_bytes,
                          .requires_host_cache = options.requires_host_cache,
                          .draft_model = std::move(draft)}));
    return absl::OkStatus();
  }

  std::shared_ptr<StepExecutor> steps() override { return executor_; }
  std::shared_ptr<const ModelWeights> weights() const override {
    return weights_;
  }
  std::shared_ptr<WeightUpdater> weight_updater() override { return updater_; }

  ItemTrieBuilder item_trie_builder() const override {
    return [ordinal = device_.ordinal](const TokenLists& items) {
      // The host builds the trie of fewer items in some milliseconds.
      constexpr int64_t kManyItems = 100'000;
      if (items.size() >= kManyItems) {
        auto trie = BuildItemTrieOn(ordinal, items);
        if (trie.ok()) return *std::move(trie);
      }
      return BuildItemTrie(items);
    };
  }

  std::string FormatFigures() const override {
    const CudaExecutorFigures figures = executor_->figures();
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
  // Beside the model, on the same device.
  absl::StatusOr<std::unique_ptr<DraftModel>> LoadDraftModel(
      const BackendOptions& options, CudaTransformerOptions transformer) {
    transformer.kv_cache_bytes = std::max<int64_t>(
        options.kv_cache_bytes / kDraftCacheShare, int64_t{1} << 20);
    ASSIGN_OR_RETURN(const auto threads,
                     ThreadPool::Create(options.num_threads));
    const auto* given =
        static_cast<const CudaWeights*>(options.loaded_weights.get());
    auto loaded =
        given == nullptr
            ? CudaTransformer::Load(options.draft_model, transformer, device_)
            : CudaTransformer::Create(given->draft, transformer, device_);
    if (!loaded.ok()) return AnnotateOption(loaded.status(), "draft_model");
    weights_->draft = (*loaded)->weights();
    const std::shared_ptr<CudaModel> model = *std::move(loaded);
    ASSIGN_OR_RETURN(auto blocking, CudaBlockingModel::Create(model));
    ASSIGN_OR_RETURN(auto sampler, CudaDraftSampler::Create(model));
    return DraftModel::Create(std::move(blocking), threads, std::move(sampler));
  }

  // Divisor of the key/value memory: a draft model is smaller.
  static constexpr int64_t kDraftCacheShare = 4;

  CudaDevice device_;
  std::shared_ptr<CudaWeightUpdater> updater_;
  std::shared_ptr<CudaExecutor> executor_;
  std::shared_ptr<CudaWeights> weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(
    const std::string& directory, const BackendOptions& options) {
  auto backend = std::make_unique<CudaBackend>();
  RETURN_IF_ERROR(backend->LoadModel(directory, options));
  return backend;
}

bool HasCudaDevice(int ordinal) { return CudaDevice::Open(ordinal).ok(); }

bool IsBuiltWithCuda() { return true; }

}  // namespace espalier
