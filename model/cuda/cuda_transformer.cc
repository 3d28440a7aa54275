#include "model/cuda/cuda_transformer.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/cuda_device_scope.h"
#include "base/status.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/elementwise/cuda_finish_heads.h"
#include "kernels/select/cuda_select.h"
#include "model/checkpoint.h"
#include "model/cuda/cuda_random_weights.h"
#include "model/cuda/cuda_transformer_memory.h"
#include "model/cuda/cuda_transformer_pass.h"
#include "model/cuda/cuda_transformer_weights.h"
#include "model/cuda_limits.h"

namespace espalier {
namespace {

constexpr int kMaxPageSize = 4096;

static_assert(kMaxCudaHiddenSize == kMaxCudaNormWidth &&
              kMaxCudaHeadDim == kMaxCudaFinishedHeadDim);

absl::Status CheckOptions(const CudaTransformerOptions& options) {
  if (options.page_size < 1 || options.page_size > kMaxPageSize) {
    return InvalidArgument("page_size must be in [1, ", kMaxPageSize, "], got ",
                           options.page_size);
  }
  if (options.weights == WeightFormat::kInt8 ||
      options.weights == WeightFormat::kInt4) {
    return InvalidArgument(
        "weights must be stored or fp8 on a GPU, got ",
        options.weights == WeightFormat::kInt8 ? "int8" : "int4");
  }
  if (options.weights == WeightFormat::kFp8 &&
      options.dtype != DType::kBFloat16) {
    return InvalidArgument("weights of fp8 need dtype bf16, got dtype ",
                           NameOf(options.dtype));
  }
  for (const auto& [field, bound] :
       {std::pair("max_tokens", options.max_tokens),
        std::pair("max_logits", options.max_logits),
        std::pair("max_attention_items", options.max_attention_items),
        std::pair("max_attention_partials", options.max_attention_partials)}) {
    if (bound < 1) {
      return InvalidArgument(field, " must be at least 1, got ", bound);
    }
  }
  return absl::OkStatus();
}

CudaCallBounds BoundsOf(const TransformerConfig& config,
                        const CudaTransformerOptions& options) {
  return {
      .max_tokens = options.max_tokens,
      .max_logits = options.max_logits,
      .max_attention_items = options.max_attention_items,
      .max_attention_partials = options.max_attention_partials,
      .max_source_pages = config.encoder ? NumSourcePages(config, options) : 0};
}

// A source is read in one call.
std::optional<EncoderDescription> DescribeEncoder(
    const TransformerConfig& config, int max_tokens) {
  if (!config.encoder) return std::nullopt;
  return EncoderDescription{
      .max_source_tokens = std::min(config.encoder->max_tokens, max_tokens),
      .features = config.encoder->feature_shape(),
      .decoder_prompt = {config.encoder->decoder_start_token_id},
      .token_without_position = config.token_without_position,
      .reported_attention =
          AttentionShape{config.num_layers(), config.num_heads}};
}

ModelDescription Describe(const TransformerConfig& config,
                          const CudaKvCache& cache, int max_tokens) {
  return {.vocab_size = config.vocab_size,
          .max_context = config.max_context,
          .eos_token_ids = config.eos_token_ids,
          .num_pages = cache.num_pages - 1,
          .page_size = cache.page_size,
          .has_shareable_pages = true,
          .encoder = DescribeEncoder(config, max_tokens)};
}

class LoadedCudaTransformer : public CudaTransformer {
 public:
  static absl::StatusOr<std::unique_ptr<CudaTransformer>> Create(
      std::shared_ptr<const CudaTransformerWeights> weights,
      const CudaTransformerOptions& options, const CudaDevice& device) {
    ASSIGN_OR_RETURN(
        std::unique_ptr<CudaTransformerPass> pass,
        CudaTransformerPass::Create(std::move(weights), options, device));
    RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    return std::unique_ptr<CudaTransformer>(
        new LoadedCudaTransformer(options, device, std::move(pass)));
  }

  ~LoadedCudaTransformer() override {
    freeing_.emplace(CudaDeviceScope::EnterIfPossible(device_.ordinal));
  }

  const ModelDescription& description() const override { return description_; }
  const std::shared_ptr<const CudaTransformerWeights>& weights()
      const override {
    return pass_->shared_weights();
  }
  const CudaDevice& device() const override { return device_; }
  const CudaCallBounds& bounds() const override { return bounds_; }
  const CudaKvCache& cache() const override { return pass_->cache(); }
  CudaAttentionShape attention_shape() const override {
    return pass_->attention_shape();
  }
  PageId null_page() const override { return {cache().num_pages - 1}; }
  CudaMemoryParts memory() const override { return pass_->memory(); }

  absl::Status Enqueue(const CudaBatch& batch, float* logits,
                       cudaStream_t stream) override {
    RETURN_IF_ERROR(CheckBounds(batch));
    if (batch.num_tokens == 0 && batch.sources.num_tokens == 0) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                     CudaDeviceScope::Enter(device_.ordinal));
    return pass_->Enqueue(batch, logits, stream);
  }

 private:
  LoadedCudaTransformer(const CudaTransformerOptions& options,
                        const CudaDevice& device,
                        std::unique_ptr<CudaTransformerPass> pass)
      : pass_(std::move(pass)),
        bounds_(BoundsOf(config(), options)),
        device_(device),
        description_(Describe(config(), pass_->cache(), options.max_tokens)) {}

  absl::Status CheckBounds(const CudaBatch& batch) const;

  // Declared first, so that the members below are freed on its device.
  std::optional<CudaDeviceScope> freeing_;
  const std::unique_ptr<CudaTransformerPass> pass_;
  const CudaCallBounds bounds_;
  const CudaDevice device_;
  const ModelDescription description_;
};

absl::Status LoadedCudaTransformer::CheckBounds(const CudaBatch& batch) const {
  struct Bound {
    const char* name;
    int value;
    int limit;
  };
  const auto check = [](std::initializer_list<Bound> bounds) {
    for (const Bound& bound : bounds) {
      if (bound.value >= 0 && bound.value <= bound.limit) continue;
      return InvalidArgument("a call of ", bound.value, " ", bound.name,
                             ", the limit is ", bound.limit);
    }
    return absl::OkStatus();
  };
  for (const CudaAttentionInputs* attention :
       {&batch.attention, &batch.cross_attention, &batch.sources.attention}) {
    RETURN_IF_ERROR(
        check({{"queries", attention->max_queries, bounds_.max_tokens},
               {"items", attention->max_items, bounds_.max_attention_items},
               {"partials", attention->max_partials,
                bounds_.max_attention_partials}}));
  }
  return check({{"tokens", batch.num_tokens, bounds_.max_tokens},
                {"rows of logits", batch.num_logits,
                 std::min(bounds_.max_logits, batch.num_tokens)},
                {"tokens of sources", batch.sources.num_tokens,
                 config().encoder ? bounds_.max_tokens : 0}});
}

using SharedWeights = std::shared_ptr<const CudaTransformerWeights>;

// The last owner may release the weights on any thread; their memory is freed
// on its device.
SharedWeights Share(CudaTransformerWeights weights, const CudaDevice& device) {
  weights.device_ordinal = device.ordinal;
  const auto release = [](const CudaTransformerWeights* released) {
    const auto scope =
        CudaDeviceScope::EnterIfPossible(released->device_ordinal);
    delete released;
  };
  return SharedWeights(new CudaTransformerWeights(std::move(weights)), release);
}

absl::StatusOr<SharedWeights> LoadWeights(const std::string& directory,
                                          const CudaTransformerOptions& given,
                                          const CudaDevice& device) {
  ASSIGN_OR_RETURN(const TransformerConfig config,
                   ReadTransformerConfig(directory));
  RETURN_IF_ERROR(CheckOptions(WithBounds(given, config.vocab_size)));
  RETURN_IF_ERROR(Annotate(CheckCudaLimits(config), directory));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(directory));
  ASSIGN_OR_RETURN(CudaTransformerWeights weights,
                   LoadCudaTransformerWeights(checkpoint, config,
                                              {given.dtype, given.weights}));
  return Share(std::move(weights), device);
}

absl::StatusOr<SharedWeights> RandomWeights(const TransformerConfig& config,
                                            const CudaTransformerOptions& given,
                                            const CudaDevice& device) {
  RETURN_IF_ERROR(CheckOptions(WithBounds(given, config.vocab_size)));
  RETURN_IF_ERROR(CheckCudaLimits(config));
  ASSIGN_OR_RETURN(
      CudaTransformerWeights weights,
      RandomCudaTransformerWeights(config, {given.dtype, given.weights}));
  return Share(std::move(weights), device);
}

// A call has room for a source of features, as all are equally long.
CudaTransformerOptions FitSource(CudaTransformerOptions options,
                                 const TransformerConfig& config) {
  const bool has_features = config.encoder && config.encoder->num_mel_bins > 0;
  // Less than 1 is refused.
  if (has_features && options.max_tokens >= 1) {
    options.max_tokens =
        std::max(options.max_tokens, config.encoder->max_tokens);
  }
  return options;
}

absl::StatusOr<std::unique_ptr<CudaTransformer>> MakeModel(
    SharedWeights weights, const CudaTransformerOptions& given,
    const CudaDevice& device) {
  const CudaTransformerOptions options =
      WithBounds(FitSource(given, weights->config), weights->config.vocab_size);
  RETURN_IF_ERROR(CheckOptions(options));
  if (device.ordinal != weights->device_ordinal) {
    return InvalidArgument(
        "device must be cuda:", weights->device_ordinal,
        ", as the weights are loaded, got cuda:", device.ordinal);
  }
  if (options.dtype != weights->types.dtype) {
    return InvalidArgument("dtype must be ", NameOf(weights->types.dtype),
                           ", as the weights are loaded, got ",
                           NameOf(options.dtype));
  }
  if (options.weights != weights->types.format) {
    return InvalidArgument("weights must be ", NameOf(weights->types.format),
                           ", as they are loaded, got ",
                           NameOf(options.weights));
  }
  return LoadedCudaTransformer::Create(std::move(weights), options, device);
}

}  // namespace

// Each token may be in a shared run and have positions of its own: two items.
// More, for small calls, let chunks be short enough to fill a device.
CudaTransformerOptions WithBounds(CudaTransformerOptions options,
                                  int vocab_size) {
  constexpr int kEnoughItems = 8192;
  constexpr int64_t kEnoughLogits = (int64_t{1} << 30) / sizeof(float);
  constexpr int64_t kFewestRows = 256;
  if (options.max_logits == 0) {
    const int64_t most = std::min(options.max_tokens, kMaxCudaLogitsRows);
    options.max_logits = static_cast<int>(std::min(
        most, std::max(kFewestRows, kEnoughLogits / std::max(vocab_size, 1))));
  }
  const auto fill = [&](int* bound, int enough) {
    if (*bound == 0) *bound = std::max(2 * options.max_tokens, enough);
  };
  fill(&options.max_attention_items, kEnoughItems);
  fill(&options.max_attention_partials, 2 * kEnoughItems);
  return options;
}

absl::StatusOr<std::unique_ptr<CudaTransformer>> CudaTransformer::Load(
    const std::string& directory, const CudaTransformerOptions& options,
    const CudaDevice& device) {
  try {
    ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                     CudaDeviceScope::Enter(device.ordinal));
    ASSIGN_OR_RETURN(SharedWeights weights,
                     LoadWeights(directory, options, device));
    return MakeModel(std::move(weights), options, device);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(directory, ": not enough memory for the model");
  }
}

absl::StatusOr<std::unique_ptr<CudaTransformer>> CudaTransformer::Random(
    const TransformerConfig& config, const CudaTransformerOptions& options,
    const CudaDevice& device) {
  try {
    ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                     CudaDeviceScope::Enter(device.ordinal));
    ASSIGN_OR_RETURN(SharedWeights weights,
                     RandomWeights(config, options, device));
    return MakeModel(std::move(weights), options, device);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory for the model");
  }
}

absl::StatusOr<std::unique_ptr<CudaTransformer>> CudaTransformer::Create(
    std::shared_ptr<const CudaTransformerWeights> weights,
    const CudaTransformerOptions& options, const CudaDevice& device) {
  if (weights == nullptr) return InvalidArgument("weights must not be null");
  try {
    ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                     CudaDeviceScope::Enter(device.ordinal));
    return MakeModel(std::move(weights), options, device);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory for the model");
  }
}

const TransformerConfig& CudaTransformer::config() const {
  return weights()->config;
}

}  // namespace espalier
