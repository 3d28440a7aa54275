#include "model/transformer_pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/attention/attention_scores.h"
#include "kernels/kv_cache/kv_layer.h"
#include "kernels/matmul/matmul.h"

namespace espalier {
namespace {

// Tokens of a row that one task stores the keys and values of.
constexpr int kRowBlock = 8;
// About how many numbers a task of an elementwise kernel takes, a microsecond
// of work; at least a row, which is not divided.
constexpr int kTaskSize = 2048;

// The first `num_rows` * `num_cols` numbers of `buffer`, which grows to hold
// them.
std::span<float> FirstRows(AlignedVector<float>& buffer, int num_rows,
                           int num_cols) {
  const size_t size = size_t(num_rows) * num_cols;
  if (buffer.size() < size) buffer.resize(size);
  return std::span(buffer).first(size);
}

template <typename T>
std::span<T> RowsBetween(std::span<T> matrix, int begin, int end,
                         int num_cols) {
  return matrix.subspan(size_t(begin) * num_cols,
                        size_t(end - begin) * num_cols);
}

// Returns the first row of logits of rows.begin.
int FirstLogitsRow(const StepPlan& plan, RowRange rows) {
  int logits_row = 0;
  for (int i = 0; i < rows.begin; ++i) logits_row += plan.rows[i].num_logits;
  return logits_row;
}

// Returns how many rows attend between two looks at the stop token.
size_t NumRowsBetweenStops(std::span<const PagedRow> rows) {
  constexpr int64_t kMaxPairs = int64_t{1} << 22;  // (token, key)
  int64_t longest = 1;
  for (const PagedRow& row : rows) {
    longest = std::max<int64_t>(
        {longest, row.num_keys, row.first_position + row.num_tokens});
  }
  return std::max<int64_t>(kMaxPairs / (kRowBlock * longest), 1);
}

// Returns the sources that the encoder reads for these rows.
std::vector<const PlanSource*> SourcesToRead(const StepPlan& plan,
                                             RowRange rows) {
  const auto row_of = &PlanSource::first_row;
  const auto begin =
      std::ranges::lower_bound(plan.sources, rows.begin, {}, row_of);
  const auto end = std::ranges::lower_bound(plan.sources, rows.end, {}, row_of);
  std::vector<const PlanSource*> sources;
  for (auto source = begin; source != end; ++source) {
    if (source->is_read()) sources.push_back(&*source);
  }
  return sources;
}

int LongestOf(std::span<const PlanSource* const> sources) {
  int longest = 0;
  for (const PlanSource* source : sources) {
    longest = std::max(longest, source->input->length());
  }
  return longest;
}

std::span<float> GrownTo(AlignedVector<float>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
  return std::span(buffer).first(size);
}

}  // namespace

// Invariant between the parts of a layer: x_ is the residual stream, and
// normed_ the next part's input.
void TransformerPass::Run(const StepPlan& plan, RowRange rows,
                          std::span<float> logits,
                          std::span<std::vector<float>> attention_scores,
                          ThreadPool& pool) {
  pool_ = &pool;
  if (!ReadSources(plan, rows)) return;
  const TransformerWeights& weights = *network_.weights;
  Batch batch = TokensOf(plan, rows);
  const std::vector<AlignedTokens> aligned =
      ListAligned(plan, rows, attention_scores);
  Embed(batch, weights);
  const int last = network_.config().num_layers() - 1;
  for (int i = 0; i <= last; ++i) {
    const WeightParts& layer = weights.layers[i];
    KvLayer kv_layer = network_.cache.layer(i);
    if (plan.stop.stop_requested()) return;
    StoreProjections(i, layer, batch, kv_layer);
    if (i == last) batch = KeepLogitsTokens(plan, rows, batch);
    AttendAndAdd(weights, i,
                 OptionsOf(weights, i, network_.config().layers[i].window),
                 batch, kv_layer, plan.stop);
    if (!batch.source_rows.empty()) {
      AttendToSourceAndAdd(i, layer, batch, aligned, kv_layer);
    }
    FeedForwardAndAdd(weights, i, batch.num_tokens);
  }
  const int first_logits_row = FirstLogitsRow(plan, rows);
  WriteLogits(
      RowsBetween(logits, first_logits_row, first_logits_row + batch.num_tokens,
                  network_.config().vocab_size),
      batch.num_tokens);
}

std::vector<TransformerPass::AlignedTokens> TransformerPass::ListAligned(
    const StepPlan& plan, RowRange rows,
    std::span<std::vector<float>> attention_scores) {
  std::vector<AlignedTokens> aligned;
  if (attention_scores.empty()) return aligned;
  int num_tokens = 0;
  int num_kept = 0;
  for (int i = rows.begin; i < rows.end; ++i) {
    const PlanRow& row = plan.rows[i];
    for (size_t j = 0; j < plan.scorings.size(); ++j) {
      const PlanPromptLogprobs& scoring = plan.scorings[j];
      const int before = scoring.first_logits - row.first_logits;
      if (scoring.alignment == nullptr || row.num_logits == 0 || before < 0 ||
          before >= row.num_logits) {
        continue;
      }
      aligned.push_back(
          {.query = scoring.alignment.get(),
           .pages = *plan.source_of(i)->pages,
           .first_token = num_tokens + row.num_tokens - row.num_logits + before,
           .first_kept = num_kept + before,
           .num_tokens = static_cast<int>(scoring.tokens.size()),
           .scores = attention_scores[j]});
    }
    num_tokens += row.num_tokens;
    num_kept += row.num_logits;
  }
  return aligned;
}

void TransformerPass::ReportScores(int layer_idx,
                                   std::span<const AlignedTokens> aligned,
                                   const KvLayer& kv_layer) {
  const TransformerConfig& config = network_.config();
  const bool is_last = layer_idx + 1 == config.num_layers();
  for (const AlignedTokens& part : aligned) {
    const AlignmentQuery& query = *part.query;
    const int num_heads = static_cast<int>(query.heads.size());
    const size_t stride = size_t(num_heads) * query.num_positions;
    pool_->ParallelFor(part.num_tokens, [&](int i) {
      const int token = (is_last ? part.first_kept : part.first_token) + i;
      const float* const q = qkv_.data() + size_t(token) * config.q_size();
      for (int h = 0; h < num_heads; ++h) {
        const auto [layer, head] = query.heads[h];
        if (layer != layer_idx) continue;
        AttentionScores(
            std::span(q + head * config.head_dim, config.head_dim), part.pages,
            kv_layer, head / (config.num_heads / config.num_kv_heads),
            config.attention_scale(),
            part.scores.subspan(i * stride + size_t(h) * query.num_positions,
                                query.num_positions));
      }
    });
  }
}

void TransformerPass::AddTokens(std::span<const TokenId> tokens,
                                const PagedRow& row, const PlanSource* source,
                                Batch* batch) {
  batch->tokens.insert(batch->tokens.end(), tokens.begin(), tokens.end());
  for (int i = 0; i < row.num_tokens; ++i) {
    batch->positions.push_back(row.first_position + i);
  }
  for (int begin = 0; begin < row.num_tokens; begin += kRowBlock) {
    PagedRow part = row;
    part.first_token = batch->num_tokens;
    part.num_tokens = std::min(kRowBlock, row.num_tokens - begin);
    part.first_position += begin;
    batch->rows.push_back(part);
    if (source != nullptr) {
      part.pages = *source->pages;
      part.num_keys = source->input->length();
      batch->source_rows.push_back(part);
    }
    batch->num_tokens += part.num_tokens;
  }
}

TransformerPass::Batch TransformerPass::TokensOf(const StepPlan& plan,
                                                 RowRange rows) const {
  Batch batch;
  for (int i = rows.begin; i < rows.end; ++i) {
    const PlanRow& row = plan.rows[i];
    AddTokens(plan.row_tokens(row),
              {.num_tokens = row.num_tokens,
               .first_position = row.first_position,
               .pages = plan.row_pages(i)},
              plan.source_of(i), &batch);
  }
  return batch;
}

void TransformerPass::AddPosition(const TransformerStackWeights& stack,
                                  int position, std::span<float> buffer,
                                  std::span<float> x) const {
  const TransformerConfig& config = network_.config();
  const EmbeddingTable& positions = stack[TablePart::kPositions];
  if (!positions.empty()) {
    positions.CopyRow(position + config.position_offset, buffer);
    AddInPlace(buffer, x);
  } else if (config.positions == PositionKind::kSinusoidal) {
    AddInPlace(RowsBetween(std::span(network_.sinusoidal_positions), position,
                           position + 1, config.hidden_size),
               x);
  }
}

void TransformerPass::ProjectEmbeddings(const Batch& batch,
                                        std::span<float> x) {
  const TransformerWeights& weights = *network_.weights;
  const int size = weights.config.embedding_size();
  const auto rows = FirstRows(branch_, batch.num_tokens, size);
  for (int t = 0; t < batch.num_tokens; ++t) {
    weights[TablePart::kEmbedding].CopyRow(batch.tokens[t],
                                           RowsBetween(rows, t, t + 1, size));
  }
  MatMul(rows, weights[MatrixPart::kProjectIn].matrix, x, *pool_);
}

void TransformerPass::Embed(const Batch& batch,
                            const TransformerStackWeights& stack) {
  const TransformerConfig& config = network_.config();
  const int size = config.hidden_size;
  const auto x = FirstRows(x_, batch.num_tokens, size);
  const auto normed = FirstRows(normed_, batch.num_tokens, size);
  const float scale = std::sqrt(static_cast<float>(size));
  const EmbeddingTable& embedding = (*network_.weights)[TablePart::kEmbedding];
  const bool projects = config.projects_embeddings();
  if (projects) ProjectEmbeddings(batch, x);
  ForRowBlocks(batch.num_tokens, size, [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      const auto to = RowsBetween(x, t, t + 1, size);
      if (!projects) embedding.CopyRow(batch.tokens[t], to);
      if (config.scales_embeddings) ScaleInPlace(scale, to);
      if (config.token_without_position == batch.tokens[t]) continue;
      // The norm's place in memory is free until the row's norm is taken.
      AddPosition(stack, batch.positions[t],
                  RowsBetween(normed, t, t + 1, size), to);
    }
    const auto sums = RowsBetween(x, begin, end, size);
    const auto to = RowsBetween(normed, begin, end, size);
    if (config.has_embedding_norm) {
      Normalise(sums, stack[NormPart::kEmbeddingNorm], sums);
    }
    if (config.norms_sums) {
      std::ranges::copy(sums, to.begin());
    } else {
      Normalise(sums, stack.layers[0][NormPart::kAttentionNorm], to);
    }
  });
}

void TransformerPass::Convolve(std::span<const float> x, int num_frames,
                               int stride, const ProductWeights& product,
                               std::span<float> y) {
  const int row_size = product.matrix.num_cols();
  const int num_channels = row_size / kNumTaps;
  const int num_out = num_frames / stride;
  const auto rows = FirstRows(neighbours_, num_out, row_size);
  ForRowBlocks(num_out, row_size, [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      for (int tap = 0; tap < kNumTaps; ++tap) {
        const auto to = RowsBetween(rows, kNumTaps * t + tap,
                                    kNumTaps * t + tap + 1, num_channels);
        const int frame = t * stride + tap - 1;
        if (frame < 0 || frame >= num_frames) {
          std::ranges::fill(to, 0.0f);
        } else {
          std::ranges::copy(RowsBetween(x, frame, frame + 1, num_channels),
                            to.begin());
        }
      }
    }
  });
  MatMul(rows, product.matrix, y, *pool_);
  const int num_cols = product.matrix.num_rows();
  ForRowBlocks(num_out, num_cols, [&](int begin, int end) {
    const auto out = RowsBetween(y, begin, end, num_cols);
    AddToRows(product.bias, out);
    ExactGeluInPlace(out);
  });
}

void TransformerPass::EmbedFeatures(
    std::span<const PlanSource* const> sources) {
  const int size = network_.config().hidden_size;
  const TransformerStackWeights& encoder = network_.weights->encoder;
  int num_tokens = 0;
  for (const PlanSource* source : sources) {
    num_tokens += source->input->length();
  }
  const auto x = FirstRows(x_, num_tokens, size);
  const auto normed = FirstRows(normed_, num_tokens, size);
  int first = 0;
  for (const PlanSource* source : sources) {
    const FeatureMatrix& features = *source->input->features();
    const int num_frames = features.shape.num_rows;
    const auto frames = FirstRows(frames_, num_frames, size);
    Convolve(features.values, num_frames, /*stride=*/1,
             encoder[MatrixPart::kConv1], frames);
    const int length = source->input->length();
    Convolve(frames, num_frames, /*stride=*/2, encoder[MatrixPart::kConv2],
             RowsBetween(x, first, first + length, size));
    ForRowBlocks(length, size, [&](int begin, int end) {
      for (int t = begin; t < end; ++t) {
        const auto sum = RowsBetween(x, first + t, first + t + 1, size);
        const auto to = RowsBetween(normed, first + t, first + t + 1, size);
        // The norm's place in memory is free until the row's norm is taken.
        AddPosition(encoder, t, to, sum);
        Normalise(sum, encoder.layers[0][NormPart::kAttentionNorm], to);
      }
    });
    first += length;
  }
}

// Leaves the tokens' q, k and v in qkv_, and k and v in their pages.
void TransformerPass::StoreProjections(int layer_idx, const WeightParts& layer,
                                       const Batch& batch, KvLayer& kv_layer) {
  const TransformerConfig& config = network_.config();
  const ProductWeights& product = layer[MatrixPart::kQkv];
  const int stride = product.matrix.num_rows();
  const auto qkv = FirstRows(qkv_, batch.num_tokens, stride);
  MatMul(Normed(batch.num_tokens), product.matrix, qkv, *pool_);
  const float* k = qkv.data() + config.q_size();
  pool_->ParallelFor(static_cast<int>(batch.rows.size()), [&](int i) {
    const PagedRow& row = batch.rows[i];
    for (int t = 0; t < row.num_tokens; ++t) {
      const auto token = RowsBetween(qkv, row.first_token + t,
                                     row.first_token + t + 1, stride);
      if (!product.bias.empty()) AddToRows(product.bias, token);
      // k follows q, so both are one run of heads.
      FinishQueriesAndKeys(layer_idx, layer, row.first_position + t,
                           token.first(config.q_size() + config.kv_size()));
    }
    StoreKeyValues(std::span(&row, 1), k, k + config.kv_size(), stride,
                   kv_layer);
  });
}

void TransformerPass::FinishQueriesAndKeys(int layer_idx,
                                           const WeightParts& layer,
                                           int position, std::span<float> qk) {
  const TransformerConfig& config = network_.config();
  if (config.has_qk_norms) {
    const auto q = qk.first(config.q_size());
    const auto k = qk.subspan(config.q_size());
    Normalise(q, layer[NormPart::kQueryNorm], q);
    Normalise(k, layer[NormPart::kKeyNorm], k);
  }
  if (config.positions != PositionKind::kRotary) return;
  const bool is_local =
      config.local_rope && config.layers[layer_idx].window > 0;
  const RotaryTable& table = is_local ? network_.local_rotary : network_.rotary;
  table.Rotate(qk, config.num_heads + config.num_kv_heads, position);
}

// Moves the rows of x_ and qkv_ whose tokens want logits together, in
// the order of the logits, and returns them as a batch.
TransformerPass::Batch TransformerPass::KeepLogitsTokens(const StepPlan& plan,
                                                         RowRange rows,
                                                         const Batch& batch) {
  Batch kept;
  std::vector<std::pair<int, int>> ranges;  // tokens of `batch` that are kept
  int row_end = 0;
  for (int i = rows.begin; i < rows.end; ++i) {
    const PlanRow& row = plan.rows[i];
    row_end += row.num_tokens;
    const int num_logits = row.num_logits;
    const int num_dropped = row.num_tokens - num_logits;
    const auto tokens = std::span(batch.tokens).subspan(row_end - num_logits);
    AddTokens(tokens.first(num_logits),
              {.num_tokens = num_logits,
               .first_position = row.first_position + num_dropped,
               .pages = plan.row_pages(i)},
              plan.source_of(i), &kept);
    ranges.emplace_back(row_end - num_logits, row_end);
  }
  const auto keep_rows = [&](AlignedVector<float>& buffer, int num_cols) {
    auto to = FirstRows(kept_, kept.num_tokens, num_cols).begin();
    for (const auto& [begin, end] : ranges) {
      const auto kept_rows =
          RowsBetween(std::span<const float>(buffer), begin, end, num_cols);
      to = std::ranges::copy(kept_rows, to).out;
    }
    std::swap(buffer, kept_);
  };
  const TransformerConfig& config = network_.config();
  keep_rows(x_, config.hidden_size);
  keep_rows(qkv_, config.q_size() + 2 * config.kv_size());
  return kept;
}

AttentionOptions TransformerPass::OptionsOf(
    const TransformerStackWeights& stack, int layer_idx, int window) const {
  const TransformerConfig& config = network_.config();
  return {.scale = config.attention_scale(),
          .soft_cap = static_cast<float>(config.attention_soft_cap),
          .window = window,
          .biases = stack.distance_biases_of(layer_idx),
          .max_distance = config.max_distance};
}

void TransformerPass::AttendAndAdd(const TransformerStackWeights& stack,
                                   int layer_idx,
                                   const AttentionOptions& options,
                                   const Batch& batch, const KvLayer& kv_layer,
                                   const std::stop_token& stop) {
  const TransformerConfig& config = network_.config();
  const WeightParts& layer = stack.layers[layer_idx];
  const auto attended = FirstRows(attended_, batch.num_tokens, config.q_size());
  // A long source takes long, as the time grows with the square of its length.
  const size_t size = NumRowsBetweenStops(batch.rows);
  for (size_t first = 0; first < batch.rows.size(); first += size) {
    if (stop.stop_requested()) return;
    const size_t count = std::min(size, batch.rows.size() - first);
    Attention(std::span(batch.rows).subspan(first, count), qkv_.data(),
              layer[MatrixPart::kQkv].matrix.num_rows(), config.num_heads,
              kv_layer, attended, *pool_, options);
  }
  const auto branch = FirstRows(branch_, batch.num_tokens, config.hidden_size);
  Multiply(attended, layer[MatrixPart::kOutput], branch);
  const NormWeights& next = batch.source_rows.empty()
                                ? layer[NormPart::kMlpNorm]
                                : layer[NormPart::kCrossNorm];
  AddAndNormalise(branch, layer[NormPart::kPostAttentionNorm],
                  config.norms_sums ? layer[NormPart::kAttentionNorm] : next,
                  batch.num_tokens);
}

void TransformerPass::AttendToSourceAndAdd(
    int layer_idx, const WeightParts& layer, const Batch& batch,
    std::span<const AlignedTokens> aligned, const KvLayer& kv_layer) {
  const TransformerConfig& config = network_.config();
  const auto q = FirstRows(qkv_, batch.num_tokens, config.q_size());
  Multiply(Normed(batch.num_tokens), layer[MatrixPart::kCrossQuery], q);
  ReportScores(layer_idx, aligned, kv_layer);
  const auto attended = FirstRows(attended_, batch.num_tokens, config.q_size());
  Attention(batch.source_rows, q.data(), config.q_size(), config.num_heads,
            kv_layer, attended, *pool_, {.scale = config.attention_scale()});
  const auto branch = FirstRows(branch_, batch.num_tokens, config.hidden_size);
  Multiply(attended, layer[MatrixPart::kCrossOutput], branch);
  AddAndNormalise(branch, {},
                  config.norms_sums ? layer[NormPart::kCrossNorm]
                                    : layer[NormPart::kMlpNorm],
                  batch.num_tokens);
}

void TransformerPass::FeedForwardAndAdd(const TransformerStackWeights& stack,
                                        int layer_idx, int num_tokens) {
  const WeightParts& layer = stack.layers[layer_idx];
  const int size = layer[MatrixPart::kDown].matrix.num_cols();
  const ProductWeights& product = layer[MatrixPart::kGateUp];
  const int width = product.matrix.num_rows();
  const auto gate_up = FirstRows(gate_up_, num_tokens, width);
  MatMul(Normed(num_tokens), product.matrix, gate_up, *pool_);
  const bool has_gate = network_.config().has_gate;
  const auto gated = has_gate ? FirstRows(gated_, num_tokens, size) : gate_up;
  ForRowBlocks(num_tokens, width, [&](int begin, int end) {
    const auto rows = RowsBetween(gate_up, begin, end, width);
    if (!product.bias.empty()) AddToRows(product.bias, rows);
    Activate(rows, size, RowsBetween(gated, begin, end, size));
  });
  const auto branch =
      FirstRows(branch_, num_tokens, network_.config().hidden_size);
  Multiply(gated, layer[MatrixPart::kDown], branch);
  const bool is_last = layer_idx + 1 == std::ssize(stack.layers);
  const NormWeights& next =
      is_last ? stack[NormPart::kFinalNorm]
              : stack.layers[layer_idx + 1][NormPart::kAttentionNorm];
  AddAndNormalise(
      branch, layer[NormPart::kPostMlpNorm],
      network_.config().norms_sums ? layer[NormPart::kMlpNorm] : next,
      num_tokens);
}

void TransformerPass::Activate(std::span<float> gate_up, int size,
                               std::span<float> gated) const {
  const Activation activation = network_.config().activation;
  if (network_.config().has_gate) {
    if (activation == Activation::kSilu) return SiluMul(gate_up, size, gated);
    CHECK(activation == Activation::kGeluTanh) << "no family has another gate";
    return GeluMul(gate_up, size, gated);
  }
  switch (activation) {
    case Activation::kSilu:
      return SiluInPlace(gate_up);
    case Activation::kGeluTanh:
      return GeluInPlace(gate_up);
    case Activation::kGelu:
      return ExactGeluInPlace(gate_up);
    case Activation::kRelu:
      return ReluInPlace(gate_up);
  }
}

void TransformerPass::WriteLogits(std::span<float> logits, int num_tokens) {
  const TransformerConfig& config = network_.config();
  const TransformerWeights& weights = *network_.weights;
  if (config.scales_head) {
    const float scale =
        1.0f / std::sqrt(static_cast<float>(config.hidden_size));
    ScaleInPlace(scale, FirstRows(normed_, num_tokens, config.hidden_size));
  }
  std::span<const float> read = Normed(num_tokens);
  if (config.projects_embeddings()) {
    const auto projected =
        FirstRows(branch_, num_tokens, config.embedding_size());
    MatMul(read, weights[MatrixPart::kProjectOut].matrix, projected, *pool_);
    read = projected;
  }
  const ProductWeights& head = weights[MatrixPart::kHead];
  MatMul(read, head.matrix, logits, *pool_);
  const auto cap = static_cast<float>(config.logit_soft_cap);
  if (cap == 0 && head.bias.empty()) return;
  ForRowBlocks(num_tokens, config.vocab_size, [&](int begin, int end) {
    const auto rows = RowsBetween(logits, begin, end, config.vocab_size);
    if (!head.bias.empty()) AddToRows(head.bias, rows);
    if (cap > 0) SoftCapInPlace(cap, rows);
  });
}

template <typename Body>
void TransformerPass::ForRowBlocks(int num_rows, int num_cols,
                                   const Body& body) {
  const int block_size = std::max(kTaskSize / num_cols, 1);
  pool_->ParallelFor(CeilDiv(num_rows, block_size), [&](int block) {
    const int begin = block * block_size;
    body(begin, std::min(begin + block_size, num_rows));
  });
}

std::span<const float> TransformerPass::Normed(int num_tokens) const {
  return std::span(normed_).first(size_t(num_tokens) *
                                  network_.config().hidden_size);
}

void TransformerPass::Multiply(std::span<const float> x,
                               const ProductWeights& product,
                               std::span<float> y) {
  MatMul(x, product.matrix, y, *pool_);
  if (product.bias.empty()) return;
  const int size = product.matrix.num_rows();
  ForRowBlocks(static_cast<int>(y.size() / size), size,
               [&](int begin, int end) {
                 AddToRows(product.bias, RowsBetween(y, begin, end, size));
               });
}

void TransformerPass::Normalise(std::span<const float> x,
                                const NormWeights& norm,
                                std::span<float> out) const {
  const auto epsilon = static_cast<float>(network_.config().norm_eps);
  if (network_.config().norm == NormKind::kLayer) {
    LayerNorm(x, norm.weight, norm.bias, epsilon, out);
  } else {
    RmsNorm(x, norm.weight, epsilon, out);
  }
}

void TransformerPass::AddAndNormalise(std::span<float> branch,
                                      const NormWeights& post_norm,
                                      const NormWeights& next_norm,
                                      int num_tokens) {
  const int size = network_.config().hidden_size;
  const auto x = FirstRows(x_, num_tokens, size);
  const auto normed = FirstRows(normed_, num_tokens, size);
  ForRowBlocks(num_tokens, size, [&](int begin, int end) {
    const auto added = RowsBetween(branch, begin, end, size);
    const auto sum = RowsBetween(x, begin, end, size);
    if (!post_norm.weight.empty()) Normalise(added, post_norm, added);
    AddInPlace(added, sum);
    const auto to = RowsBetween(normed, begin, end, size);
    Normalise(sum, next_norm, to);
    if (network_.config().norms_sums) std::ranges::copy(to, sum.begin());
  });
}

// While the encoder runs, source i has its keys and values in page i of a layer
// whose pages hold the longest of them.
bool TransformerPass::ReadSources(const StepPlan& plan, RowRange rows) {
  const std::vector<const PlanSource*> sources = SourcesToRead(plan, rows);
  if (sources.empty()) return true;
  const TransformerConfig& config = network_.config();
  const TransformerStackWeights& encoder = network_.weights->encoder;
  std::vector<PageId> pages;
  for (int i = 0; i < std::ssize(sources); ++i) pages.push_back(PageId{i});
  Batch batch;
  for (size_t i = 0; i < sources.size(); ++i) {
    const int length = sources[i]->input->length();
    AddTokens(sources[i]->input->tokens(),
              {.num_tokens = length,
               .pages = std::span(pages).subspan(i, 1),
               .num_keys = length},
              nullptr, &batch);
  }
  const int longest = LongestOf(sources);
  const size_t size = sources.size() * longest * config.kv_size();
  KvLayer kv_layer = {.keys = GrownTo(source_keys_, size),
                      .values = GrownTo(source_values_, size),
                      .page_size = longest,
                      .num_kv_heads = config.num_kv_heads,
                      .head_dim = config.head_dim};
  if (config.encoder->num_mel_bins > 0) {
    EmbedFeatures(sources);
  } else {
    Embed(batch, encoder);
  }
  for (int i = 0; i < std::ssize(encoder.layers); ++i) {
    if (plan.stop.stop_requested()) return false;
    StoreProjections(i, encoder.layers[i], batch, kv_layer);
    AttendAndAdd(encoder, i, OptionsOf(encoder, i, /*window=*/0), batch,
                 kv_layer, plan.stop);
    FeedForwardAndAdd(encoder, i, batch.num_tokens);
  }
  if (plan.stop.stop_requested()) return false;
  StoreSources(sources, batch.num_tokens);
  return true;
}

// Computes the decoder's cross-attention keys and values of the encoder's
// output, which is in normed_.
void TransformerPass::StoreSources(std::span<const PlanSource* const> sources,
                                   int num_tokens) {
  const int kv_size = network_.config().kv_size();
  std::vector<PagedRow> rows;
  int first_token = 0;
  for (const PlanSource* source : sources) {
    const int length = source->input->length();
    rows.push_back({.first_token = first_token + source->num_stored,
                    .num_tokens = length - source->num_stored,
                    .first_position = source->num_stored,
                    .pages = *source->pages});
    first_token += length;
  }
  for (int i = 0; i < network_.config().num_layers(); ++i) {
    const auto kv = GrownTo(qkv_, size_t(num_tokens) * 2 * kv_size);
    Multiply(Normed(num_tokens),
             network_.weights->layers[i][MatrixPart::kCrossKv], kv);
    KvLayer kv_layer = network_.cache.layer(i);
    StoreKeyValues(rows, kv.data(), kv.data() + kv_size, 2 * kv_size, kv_layer);
  }
}

}  // namespace espalier
