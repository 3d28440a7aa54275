#include "model/llama_model.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/matmul.h"

namespace espalier {
namespace {

// Rows that one task of an elementwise kernel takes: about a microsecond.
constexpr int kRowBlock = 8;

// The first `num_rows` * `num_cols` numbers of `buffer`, which grows to hold
// them.
std::span<float> Lines(AlignedVector<float>& buffer, int num_rows,
                       int num_cols) {
  const size_t size = size_t(num_rows) * num_cols;
  if (buffer.size() < size) buffer.resize(size);
  return std::span(buffer).first(size);
}

template <typename T>
std::span<T> LineRange(std::span<T> lines, int begin, int end, int num_cols) {
  return lines.subspan(size_t(begin) * num_cols,
                       size_t(end - begin) * num_cols);
}

KvCacheShape CacheShape(const LlamaConfig& config, int page_size) {
  return {.num_layers = config.num_layers,
          .page_size = page_size,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim};
}

// No sequence gets further than the pages reach; so the table stays small
// against the key/value memory, whatever a config claims.
int NumPositions(const LlamaConfig& config, const PagedKvCache& cache) {
  const int64_t num_slots =
      int64_t{cache.num_pages()} * cache.shape().page_size;
  return static_cast<int>(std::min<int64_t>(config.max_context, num_slots));
}

ModelDescription Describe(const LlamaConfig& config,
                          const PagedKvCache& cache) {
  return {.vocab_size = config.vocab_size,
          .max_context = config.max_context,
          .eos_token_ids = config.eos_token_ids,
          .default_max_new_tokens = config.default_max_new_tokens,
          .num_pages = cache.num_pages(),
          .page_size = cache.shape().page_size};
}

// The tokens of the plan, in order, as rows of at most kRowBlock tokens: a long
// chunk of a prompt is work for several threads.
std::vector<AttentionRow> SplitRows(const StepPlan& plan) {
  std::vector<AttentionRow> rows;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    for (int begin = 0; begin < row.num_tokens; begin += kRowBlock) {
      rows.push_back({.first_token = row.first_token + begin,
                      .num_tokens = std::min(kRowBlock, row.num_tokens - begin),
                      .first_position = row.first_position + begin,
                      .pages = plan.row_pages(i)});
    }
  }
  return rows;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Load(
    const std::string& directory, const LlamaOptions& options,
    ThreadPool* pool) {
  ASSIGN_OR_RETURN(LlamaConfig config, ReadLlamaConfig(directory));
  ASSIGN_OR_RETURN(PagedKvCache cache,
                   PagedKvCache::Create(CacheShape(config, options.page_size),
                                        options.kv_cache_bytes));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(directory));
  auto weights = LoadLlamaWeights(checkpoint, config);
  if (!weights.ok()) return Annotate(weights.status(), directory);
  try {
    return std::unique_ptr<LlamaModel>(new LlamaModel(
        std::move(config), *std::move(weights), std::move(cache), pool));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(directory, ": not enough memory for the model");
  }
}

LlamaModel::LlamaModel(LlamaConfig config, LlamaWeights weights,
                       PagedKvCache cache, ThreadPool* pool)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      cache_(std::move(cache)),
      rotary_(InverseFrequencies(config_.rope, config_.head_dim),
              NumPositions(config_, cache_)),
      description_(Describe(config_, cache_)),
      pool_(pool) {}

// Whether the plan keeps within this model's tokens, positions and pages.
bool LlamaModel::IsSound(const StepPlan& plan) const {
  const auto in_vocabulary = [&](TokenId token) {
    return token >= 0 && token < config_.vocab_size;
  };
  const auto is_page = [&](PageId page) {
    return page.value >= 0 && page.value < cache_.num_pages();
  };
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    const size_t end = row.first_position + row.num_tokens;
    if (row.first_position < 0 || row.num_tokens < 1 ||
        row.num_logits > row.num_tokens || end > config_.max_context ||
        end > plan.row_pages(i).size() * cache_.shape().page_size) {
      return false;
    }
  }
  return std::ranges::all_of(plan.tokens, in_vocabulary) &&
         std::ranges::all_of(plan.page_indices, is_page);
}

absl::Status LlamaModel::Forward(const StepPlan& plan,
                                 std::span<float> logits) {
  CHECK_EQ(logits.size(), size_t(plan.num_logits) * config_.vocab_size);
  DCHECK(IsSound(plan)) << "a plan of " << plan.rows.size() << " rows";
  pool_->ParallelFor(config_.num_layers, [&](int i) {
    KvLayer layer = cache_.layer(i);
    CopyPages(plan.page_copies, layer);
  });
  if (plan.empty()) return absl::OkStatus();
  try {
    Compute(plan, logits);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory for a step of ",
                             plan.tokens.size(), " tokens");
  }
  return absl::OkStatus();
}

// Between the parts of a layer x_ is the residual stream, and normed_ what the
// next part reads.
void LlamaModel::Compute(const StepPlan& plan, std::span<float> logits) {
  Batch batch = {.rows = SplitRows(plan),
                 .num_tokens = static_cast<int>(plan.tokens.size())};
  Embed(plan.tokens);
  const int last = config_.num_layers - 1;
  for (int i = 0; i <= last; ++i) {
    const LlamaLayerWeights& layer = weights_.layers[i];
    KvLayer kv_layer = cache_.layer(i);
    StoreProjections(layer, batch, kv_layer);
    if (i == last) batch = KeepLogitsTokens(plan);
    AttendAndAdd(layer, batch, kv_layer);
    FeedForwardAndAdd(layer, batch.num_tokens,
                      i == last ? weights_.final_norm
                                : weights_.layers[i + 1].attention_norm);
  }
  MatMul(Normed(batch.num_tokens), weights_.head(), logits, *pool_);
}

void LlamaModel::Embed(std::span<const TokenId> tokens) {
  const int size = config_.hidden_size;
  const int num_tokens = static_cast<int>(tokens.size());
  const auto x = Lines(x_, num_tokens, size);
  const auto normed = Lines(normed_, num_tokens, size);
  ForRowBlocks(num_tokens, [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      weights_.embedding.CopyRow(tokens[t], LineRange(x, t, t + 1, size));
    }
    RmsNorm(LineRange(x, begin, end, size), weights_.layers[0].attention_norm,
            config_.rms_norm_eps, LineRange(normed, begin, end, size));
  });
}

// Leaves the tokens' rotated q, k and v in qkv_, and k and v in their pages.
void LlamaModel::StoreProjections(const LlamaLayerWeights& layer,
                                  const Batch& batch, KvLayer& kv_layer) {
  const int stride = layer.qkv.num_rows();
  const auto qkv = Lines(qkv_, batch.num_tokens, stride);
  MatMul(Normed(batch.num_tokens), layer.qkv, qkv, *pool_);
  // k follows q, so both are one run of heads.
  const int num_rotated = config_.num_heads + config_.num_kv_heads;
  const float* k = qkv.data() + config_.q_size();
  pool_->ParallelFor(static_cast<int>(batch.rows.size()), [&](int i) {
    const AttentionRow& row = batch.rows[i];
    for (int t = 0; t < row.num_tokens; ++t) {
      const size_t line = size_t(row.first_token + t) * stride;
      rotary_.Rotate(qkv.subspan(line, num_rotated * config_.head_dim),
                     num_rotated, row.first_position + t);
    }
    StoreKeyValues(std::span(&row, 1), k, k + config_.kv_size(), stride,
                   kv_layer);
  });
}

// Moves the lines of x_ and qkv_ whose tokens want logits together, in the
// order of the logits, and returns them as a batch.
LlamaModel::Batch LlamaModel::KeepLogitsTokens(const StepPlan& plan) {
  Batch kept;
  kept.num_tokens = plan.num_logits;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    const int num_dropped = row.num_tokens - row.num_logits;
    kept.rows.push_back({.first_token = row.first_logits,
                         .num_tokens = row.num_logits,
                         .first_position = row.first_position + num_dropped,
                         .pages = plan.row_pages(i)});
  }
  const auto keep_lines = [&](AlignedVector<float>& buffer, int num_cols) {
    const auto to = Lines(kept_, kept.num_tokens, num_cols);
    for (const PlanRow& row : plan.rows) {
      const int end = row.first_token + row.num_tokens;
      const auto lines = LineRange(std::span<const float>(buffer),
                                   end - row.num_logits, end, num_cols);
      std::ranges::copy(lines,
                        to.begin() + int64_t{row.first_logits} * num_cols);
    }
    std::swap(buffer, kept_);
  };
  keep_lines(x_, config_.hidden_size);
  keep_lines(qkv_, config_.q_size() + 2 * config_.kv_size());
  return kept;
}

void LlamaModel::AttendAndAdd(const LlamaLayerWeights& layer,
                              const Batch& batch, const KvLayer& kv_layer) {
  const auto attended = Lines(attended_, batch.num_tokens, config_.q_size());
  Attention(batch.rows, qkv_.data(), layer.qkv.num_rows(), config_.num_heads,
            kv_layer, attended, *pool_);
  const auto branch = Lines(branch_, batch.num_tokens, config_.hidden_size);
  MatMul(attended, layer.output, branch, *pool_);
  AddAndNormalise(branch, layer.mlp_norm, batch.num_tokens);
}

void LlamaModel::FeedForwardAndAdd(const LlamaLayerWeights& layer,
                                   int num_tokens,
                                   std::span<const float> next_norm) {
  const int size = config_.intermediate_size;
  const auto gate_up = Lines(gate_up_, num_tokens, 2 * size);
  MatMul(Normed(num_tokens), layer.gate_up, gate_up, *pool_);
  const auto gated = Lines(gated_, num_tokens, size);
  ForRowBlocks(num_tokens, [&](int begin, int end) {
    SiluMul(LineRange(std::span<const float>(gate_up), begin, end, 2 * size),
            size, LineRange(gated, begin, end, size));
  });
  const auto branch = Lines(branch_, num_tokens, config_.hidden_size);
  MatMul(gated, layer.down, branch, *pool_);
  AddAndNormalise(branch, next_norm, num_tokens);
}

template <typename Body>
void LlamaModel::ForRowBlocks(int num_rows, const Body& body) {
  const int num_blocks = (num_rows + kRowBlock - 1) / kRowBlock;
  pool_->ParallelFor(num_blocks, [&](int block) {
    const int begin = block * kRowBlock;
    body(begin, std::min(begin + kRowBlock, num_rows));
  });
}

std::span<const float> LlamaModel::Normed(int num_tokens) const {
  return std::span(normed_).first(size_t(num_tokens) * config_.hidden_size);
}

void LlamaModel::AddAndNormalise(std::span<const float> branch,
                                 std::span<const float> weight,
                                 int num_tokens) {
  const int size = config_.hidden_size;
  const auto x = Lines(x_, num_tokens, size);
  const auto normed = Lines(normed_, num_tokens, size);
  ForRowBlocks(num_tokens, [&](int begin, int end) {
    AddInPlace(LineRange(branch, begin, end, size),
               LineRange(x, begin, end, size));
    RmsNorm(LineRange(x, begin, end, size), weight, config_.rms_norm_eps,
            LineRange(normed, begin, end, size));
  });
}

}  // namespace espalier
