#include "model/transformer_model.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/page_count.h"
#include "base/status.h"
#include "model/positions.h"
#include "model/transformer_pass.h"

namespace espalier {
namespace {

// Tokens a pass of its own must have to be worth reading all weights for: two
// tiles of rows of a matrix product (kernels/matmul/matmul_tile.h).
constexpr int kMinPassTokens = 24;
// The largest pass, in percent of an equal share: parallel passes take as long
// as the slowest.
constexpr int kMaxPassPercent = 120;
// Most tokens that go through the layers together: enough that reading all
// weights again costs a few percent, and few enough that a layer's activations
// stay in cache and a step can be cancelled soon.
constexpr int kMaxPieceTokens = 512;

KvCacheShape CacheShape(const TransformerConfig& config, int page_size) {
  return {.num_layers = config.num_layers(),
          .page_size = page_size,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim};
}

// No sequence gets further than the pages reach; so the table stays small
// against the key/value memory, whatever a config claims.
int NumPositions(const TransformerConfig& config, const PagedKvCache& cache) {
  const int64_t num_slots =
      int64_t{cache.num_pages()} * cache.shape().page_size;
  int num_positions = config.max_context;
  if (config.encoder) {
    num_positions = std::max(num_positions, config.encoder->max_tokens);
  }
  return static_cast<int>(std::min<int64_t>(num_positions, num_slots));
}

RotaryTable MakeRotary(const TransformerConfig& config,
                       const RopeParameters& rope, const PagedKvCache& cache) {
  return RotaryTable(InverseFrequencies(rope, config.head_dim),
                     NumPositions(config, cache), rope.attention_factor);
}

std::optional<EncoderDescription> DescribeEncoder(
    const TransformerConfig& config) {
  if (!config.encoder) return std::nullopt;
  return EncoderDescription{
      .max_source_tokens = config.encoder->max_tokens,
      .features = config.encoder->feature_shape(),
      .decoder_prompt = {config.encoder->decoder_start_token_id},
      .token_without_position = config.token_without_position,
      .reported_attention =
          AttentionShape{config.num_layers(), config.num_heads}};
}

ModelDescription Describe(const TransformerNetwork& network,
                          const std::optional<PagedKvCache>& host) {
  const TransformerConfig& config = network.config();
  return {.vocab_size = config.vocab_size,
          .max_context = config.max_context,
          .eos_token_ids = config.eos_token_ids,
          .num_pages = network.cache.num_pages(),
          .page_size = network.cache.shape().page_size,
          .has_shareable_pages = true,
          .num_host_slots = host ? host->num_pages() : 0,
          .page_bytes = network.cache.shape().page_bytes(),
          .encoder = DescribeEncoder(config)};
}

// Makes the host cache for swapped pages; nullopt without host_cache_bytes.
absl::StatusOr<std::optional<PagedKvCache>> MakeHostCache(
    const PagedKvCache& cache, const TransformerOptions& options) {
  if (options.host_cache_bytes == 0) return std::nullopt;
  ASSIGN_OR_RETURN(PagedKvCache host,
                   PagedKvCache::Create(cache.shape(), options.host_cache_bytes,
                                        "host_cache_bytes"));
  return host;
}

absl::StatusOr<TransformerNetwork> MakeNetwork(
    std::shared_ptr<const TransformerWeights> weights,
    const TransformerOptions& options) {
  const TransformerConfig& config = weights->config;
  ASSIGN_OR_RETURN(PagedKvCache cache,
                   PagedKvCache::Create(CacheShape(config, options.page_size),
                                        options.kv_cache_bytes));
  RotaryTable rotary, local_rotary;
  if (config.positions == PositionKind::kRotary) {
    rotary = MakeRotary(config, config.rope, cache);
    if (config.local_rope) {
      local_rotary = MakeRotary(config, *config.local_rope, cache);
    }
  }
  std::vector<float> sinusoidal;
  if (config.positions == PositionKind::kSinusoidal) {
    sinusoidal = SinusoidTable(config, NumPositions(config, cache));
  }
  return TransformerNetwork{std::move(weights), std::move(cache),
                            std::move(rotary), std::move(local_rotary),
                            std::move(sinusoidal)};
}

// Checks the options of the model's KV cache, before weights are loaded for it.
absl::Status CheckCache(const std::string& directory,
                        const TransformerOptions& options) {
  ASSIGN_OR_RETURN(const TransformerConfig config,
                   ReadTransformerConfig(directory));
  return PagedKvCache::Create(CacheShape(config, options.page_size),
                              options.kv_cache_bytes)
      .status();
}

// True if the input is what the model's encoder reads: tokens in range, or
// features of its shape.
bool IsInputSound(const EncoderInput& input, const ModelDescription& model) {
  const EncoderDescription& encoder = *model.encoder;
  const FeatureMatrix* const features = input.features();
  if ((features != nullptr) != encoder.features.has_value()) return false;
  if (features == nullptr) {
    return input.length() <= encoder.max_source_tokens &&
           std::ranges::all_of(input.tokens(), [&](TokenId token) {
             return token >= 0 && token < model.vocab_size;
           });
  }
  return features->shape == *encoder.features &&
         input.length() == encoder.max_source_tokens;
}

// True if each row has a source or, without an encoder, none has; and if the
// sources' inputs and pages are in range.
bool AreSourcesSound(const StepPlan& plan, const ModelDescription& model) {
  if (!model.encoder && !plan.sources.empty()) return false;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if ((plan.source_of(i) != nullptr) != model.encoder.has_value()) {
      return false;
    }
  }
  return std::ranges::all_of(plan.sources, [&](const PlanSource& source) {
    const int length = source.input->length();
    return (source.num_rows == 1 || !source.is_read()) &&
           source.num_stored >= 0 && source.num_stored <= length &&
           std::ssize(*source.pages) == NumPages(length, model.page_size) &&
           IsInputSound(*source.input, model) &&
           std::ranges::all_of(*source.pages, [&](PageId page) {
             return page.value >= 0 && page.value < model.num_pages;
           });
  });
}

// Returns the tokens of each row, including a source that is read for it.
std::vector<int64_t> NumTokensOfRows(const StepPlan& plan) {
  std::vector<int64_t> counts;
  for (const PlanRow& row : plan.rows) counts.push_back(row.num_tokens);
  for (const PlanSource& source : plan.sources) {
    if (source.is_read()) counts[source.first_row] += source.input->length();
  }
  return counts;
}

// Divides rows into runs of at most kMaxPieceTokens tokens; a longer row is a
// run of its own.
//   num_tokens  [plan's rows]
std::vector<RowRange> Pieces(std::span<const int64_t> num_tokens,
                             RowRange rows) {
  std::vector<RowRange> pieces;
  for (int row = rows.begin; row < rows.end;) {
    const int begin = row;
    int64_t count = num_tokens[row++];
    while (row < rows.end && count + num_tokens[row] <= kMaxPieceTokens) {
      count += num_tokens[row++];
    }
    pieces.push_back({begin, row});
  }
  return pieces;
}

}  // namespace

class TransformerModel::Impl {
 public:
  Impl(TransformerNetwork network, std::optional<PagedKvCache> host,
       std::shared_ptr<ThreadPool> pool);

  const ModelDescription& description() const { return description_; }
  const std::shared_ptr<const TransformerWeights>& weights() const {
    return network_.weights;
  }
  void SetWeights(std::shared_ptr<const TransformerWeights> weights) {
    network_.weights = std::move(weights);
  }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits,
                       std::span<std::vector<float>> attention_scores);

 private:
  bool IsSound(const StepPlan& plan) const;
  // Swaps and copies pages, as the plan says.
  void MovePages(const StepPlan& plan);
  // Rows for each of the passes that a plan is divided into.
  //   num_tokens_of_rows  [plan's rows]
  std::vector<RowRange> Divide(
      std::span<const int64_t> num_tokens_of_rows) const;

  // Constant after construction, but for the weights.
  TransformerNetwork network_;
  const std::optional<PagedKvCache> host_;
  const ModelDescription description_;
  const std::shared_ptr<ThreadPool> pool_;
  ThreadPool one_thread_;  // for passes that run in parallel

  std::vector<TransformerPass> passes_;  // [pool's threads]
};

TransformerModel::Impl::Impl(TransformerNetwork network,
                             std::optional<PagedKvCache> host,
                             std::shared_ptr<ThreadPool> pool)
    : network_(std::move(network)),
      host_(std::move(host)),
      description_(Describe(network_, host_)),
      pool_(std::move(pool)),
      passes_(pool_->num_threads(), TransformerPass(&network_)) {}

// True if the plan's tokens, positions and pages are in this model's range and
// its rows are contiguous.
bool TransformerModel::Impl::IsSound(const StepPlan& plan) const {
  const auto in_vocabulary = [&](TokenId token) {
    return token >= 0 && token < description_.vocab_size;
  };
  const auto is_page = [&](PageId page) {
    return page.value >= 0 && page.value < description_.num_pages;
  };
  int num_tokens = 0;
  int num_logits = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    const size_t end = row.first_position + row.num_tokens;
    if (row.first_position < 0 || row.num_tokens < 1 || row.num_logits < 0 ||
        row.num_logits > row.num_tokens ||
        end > static_cast<size_t>(description_.max_context) ||
        end > plan.row_pages(i).size() * description_.page_size ||
        row.first_token != num_tokens ||
        (row.num_logits > 0 && row.first_logits != num_logits)) {
      return false;
    }
    num_tokens += row.num_tokens;
    num_logits += row.num_logits;
  }
  return num_tokens == static_cast<int>(plan.tokens.size()) &&
         num_logits == plan.num_logits && AreSourcesSound(plan, description_) &&
         std::ranges::all_of(plan.tokens, in_vocabulary) &&
         std::ranges::all_of(plan.page_indices, is_page);
}

std::vector<RowRange> TransformerModel::Impl::Divide(
    std::span<const int64_t> num_tokens_of_rows) const {
  const int num_rows = static_cast<int>(num_tokens_of_rows.size());
  const int64_t num_tokens = std::accumulate(
      num_tokens_of_rows.begin(), num_tokens_of_rows.end(), int64_t{0});
  const int num_passes = static_cast<int>(passes_.size());
  const std::vector<RowRange> one = {{0, num_rows}};
  if (num_tokens < int64_t{num_passes} * kMinPassTokens) return one;
  std::vector<RowRange> passes;
  int row = 0;
  int64_t num_taken = 0;
  for (int i = 0; i < num_passes; ++i) {
    const int begin = row;
    const int64_t before = num_taken;
    const int64_t goal = num_tokens * (i + 1) / num_passes;
    while (row < num_rows && num_taken < goal) {
      num_taken += num_tokens_of_rows[row++];
    }
    // A long chunk of a prompt is one row, and better divided inside.
    const int64_t share = num_taken - before;
    if (share == 0 || share * num_passes * 100 > num_tokens * kMaxPassPercent) {
      return one;
    }
    passes.push_back({begin, row});
  }
  return passes;
}

void TransformerModel::Impl::MovePages(const StepPlan& plan) {
  pool_->ParallelFor(network_.config().num_layers(), [&](int i) {
    KvLayer layer = network_.cache.layer(i);
    if (host_) {
      KvLayer host = host_->layer(i);
      SavePages(plan.page_saves, layer, host);
      LoadPages(plan.page_loads, host, layer);
    }
    CopyPages(plan.page_copies, layer);
  });
}

absl::Status TransformerModel::Impl::Forward(
    const StepPlan& plan, std::span<float> logits,
    std::span<std::vector<float>> attention_scores) {
  CHECK_EQ(logits.size(), size_t(plan.num_logits) * description_.vocab_size);
  DCHECK(IsSound(plan)) << "a plan of " << plan.rows.size() << " rows";
  MovePages(plan);
  if (plan.empty()) return absl::OkStatus();
  const std::vector<int64_t> num_tokens = NumTokensOfRows(plan);
  const std::vector<RowRange> ranges = Divide(num_tokens);
  std::atomic<bool> out_of_memory = false;
  const auto run = [&](int i, ThreadPool& pool) {
    try {
      for (const RowRange piece : Pieces(num_tokens, ranges[i])) {
        passes_[i].Run(plan, piece, logits, attention_scores, pool);
      }
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  };
  if (ranges.size() == 1) {
    run(0, *pool_);
  } else {
    pool_->ParallelFor(static_cast<int>(ranges.size()),
                       [&](int i) { run(i, one_thread_); });
  }
  if (plan.stop.stop_requested()) {
    return MakeError(absl::StatusCode::kCancelled, "the step was given up");
  }
  if (!out_of_memory) return absl::OkStatus();
  return ResourceExhausted("not enough memory for a step of ",
                           plan.tokens.size(), " tokens");
}

absl::StatusOr<std::unique_ptr<TransformerModel>> TransformerModel::MakeModel(
    std::shared_ptr<const TransformerWeights> weights,
    const TransformerOptions& options, std::shared_ptr<ThreadPool> pool) {
  ASSIGN_OR_RETURN(TransformerNetwork network,
                   MakeNetwork(std::move(weights), options));
  ASSIGN_OR_RETURN(std::optional<PagedKvCache> host,
                   MakeHostCache(network.cache, options));
  return std::unique_ptr<TransformerModel>(
      new TransformerModel(std::make_unique<Impl>(
          std::move(network), std::move(host), std::move(pool))));
}

absl::StatusOr<std::unique_ptr<TransformerModel>> TransformerModel::Load(
    const std::string& directory, const TransformerOptions& options,
    std::shared_ptr<ThreadPool> pool) {
  if (pool == nullptr) return InvalidArgument("pool must not be null");
  try {
    RETURN_IF_ERROR(CheckCache(directory, options));
    ASSIGN_OR_RETURN(
        auto weights,
        LoadTransformerWeights(directory, {.format = options.weights,
                                           .pool = pool.get(),
                                           .progress = options.progress}));
    return MakeModel(std::move(weights), options, std::move(pool));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(directory, ": not enough memory for the model");
  }
}

absl::StatusOr<std::unique_ptr<TransformerModel>> TransformerModel::Create(
    std::shared_ptr<const TransformerWeights> weights,
    const TransformerOptions& options, std::shared_ptr<ThreadPool> pool) {
  if (weights == nullptr) return InvalidArgument("weights must not be null");
  if (pool == nullptr) return InvalidArgument("pool must not be null");
  if (options.weights != weights->format) {
    return InvalidArgument("weights must be ", NameOf(weights->format),
                           ", as they are loaded, got ",
                           NameOf(options.weights));
  }
  try {
    return MakeModel(std::move(weights), options, std::move(pool));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory for the model");
  }
}

TransformerModel::TransformerModel(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
TransformerModel::~TransformerModel() = default;

const ModelDescription& TransformerModel::description() const {
  return impl_->description();
}

const std::shared_ptr<const TransformerWeights>& TransformerModel::weights()
    const {
  return impl_->weights();
}

void TransformerModel::SetWeights(
    std::shared_ptr<const TransformerWeights> weights) {
  impl_->SetWeights(std::move(weights));
}

absl::Status TransformerModel::Forward(const StepPlan& plan,
                                       std::span<float> logits) {
  return impl_->Forward(plan, logits, {});
}

absl::Status TransformerModel::ForwardAligned(
    const StepPlan& plan, std::span<float> logits,
    std::span<std::vector<float>> attention_scores) {
  CHECK_EQ(attention_scores.size(), plan.scorings.size());
  for (size_t i = 0; i < plan.scorings.size(); ++i) {
    const PlanPromptLogprobs& scoring = plan.scorings[i];
    if (scoring.alignment == nullptr) continue;
    const AlignmentQuery& query = *scoring.alignment;
    try {
      attention_scores[i].resize(scoring.tokens.size() * query.heads.size() *
                                 query.num_positions);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("not enough memory for the scores of ",
                               query.heads.size(), " heads of attention");
    }
  }
  return impl_->Forward(plan, logits, attention_scores);
}

}  // namespace espalier
