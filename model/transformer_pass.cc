#include "model/transformer_pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/matmul/matmul.h"

namespace espalier {
namespace {

// Rows that one task of an elementwise kernel takes: about a microsecond.
constexpr int kRowBlock = 8;

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

// The position of each token.
std::vector<int> PositionsOf(std::span<const PagedRow> rows) {
  std::vector<int> positions;
  for (const PagedRow& row : rows) {
    for (int i = 0; i < row.num_tokens; ++i) {
      positions.push_back(row.first_position + i);
    }
  }
  return positions;
}

// Where the rows of logits of these rows begin.
int FirstLogitsRow(const StepPlan& plan, RowRange rows) {
  int logits_row = 0;
  for (int i = 0; i < rows.begin; ++i) logits_row += plan.rows[i].num_logits;
  return logits_row;
}

}  // namespace

// Between the parts of a layer x_ is the residual stream, and normed_ what the
// next part reads.
void TransformerPass::Run(const StepPlan& plan, RowRange rows,
                          std::span<float> logits, ThreadPool& pool) {
  pool_ = &pool;
  const TransformerWeights& weights = network_.weights;
  Batch batch = TokensOf(plan, rows);
  const int first_token = plan.rows[rows.begin].first_token;
  Embed(batch, std::span(plan.tokens).subspan(first_token, batch.num_tokens));
  const int last = network_.config.num_layers - 1;
  for (int i = 0; i <= last; ++i) {
    const TransformerLayerWeights& layer = weights.layers[i];
    KvLayer kv_layer = network_.cache.layer(i);
    if (plan.stop.stop_requested()) return;
    StoreProjections(i, batch, kv_layer);
    if (i == last) batch = KeepLogitsTokens(plan, rows);
    AttendAndAdd(i, batch, kv_layer);
    FeedForwardAndAdd(
        layer, batch.num_tokens,
        i == last ? weights.final_norm : weights.layers[i + 1].attention_norm);
  }
  const int first_logits_row = FirstLogitsRow(plan, rows);
  WriteLogits(
      RowsBetween(logits, first_logits_row, first_logits_row + batch.num_tokens,
                  network_.config.vocab_size),
      batch.num_tokens);
}

// The tokens of the rows, as attention rows of at most kRowBlock tokens: a
// long chunk of a prompt is work for several threads.
TransformerPass::Batch TransformerPass::TokensOf(const StepPlan& plan,
                                                 RowRange rows) const {
  Batch batch;
  for (int i = rows.begin; i < rows.end; ++i) {
    const PlanRow& row = plan.rows[i];
    for (int begin = 0; begin < row.num_tokens; begin += kRowBlock) {
      const int num_tokens = std::min(kRowBlock, row.num_tokens - begin);
      batch.rows.push_back({.first_token = batch.num_tokens,
                            .num_tokens = num_tokens,
                            .first_position = row.first_position + begin,
                            .pages = plan.row_pages(i)});
      batch.num_tokens += num_tokens;
    }
  }
  return batch;
}

void TransformerPass::Embed(const Batch& batch,
                            std::span<const TokenId> tokens) {
  const TransformerConfig& config = network_.config;
  const TransformerWeights& weights = network_.weights;
  const int size = config.hidden_size;
  const auto x = FirstRows(x_, batch.num_tokens, size);
  const auto normed = FirstRows(normed_, batch.num_tokens, size);
  const float scale = std::sqrt(static_cast<float>(size));
  const std::vector<int> positions = config.positions == PositionKind::kLearned
                                         ? PositionsOf(batch.rows)
                                         : std::vector<int>();
  ForRowBlocks(batch.num_tokens, [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      const auto to = RowsBetween(x, t, t + 1, size);
      weights.embedding.CopyRow(tokens[t], to);
      if (config.scales_embeddings) ScaleInPlace(scale, to);
      if (positions.empty()) continue;
      // The norm's place in memory is free until the row's norm is taken.
      const auto learned = RowsBetween(normed, t, t + 1, size);
      weights.positions.CopyRow(positions[t], learned);
      AddInPlace(learned, to);
    }
    Normalise(RowsBetween(x, begin, end, size),
              weights.layers[0].attention_norm,
              RowsBetween(normed, begin, end, size));
  });
}

// Leaves the tokens' q, k and v in qkv_, and k and v in their pages.
void TransformerPass::StoreProjections(int layer_idx, const Batch& batch,
                                       KvLayer& kv_layer) {
  const TransformerConfig& config = network_.config;
  const ProductWeights& product = network_.weights.layers[layer_idx].qkv;
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
      FinishQueriesAndKeys(layer_idx, row.first_position + t,
                           token.first(config.q_size() + config.kv_size()));
    }
    StoreKeyValues(std::span(&row, 1), k, k + config.kv_size(), stride,
                   kv_layer);
  });
}

void TransformerPass::FinishQueriesAndKeys(int layer_idx, int position,
                                           std::span<float> qk) {
  const TransformerConfig& config = network_.config;
  if (config.has_qk_norms) {
    const TransformerLayerWeights& layer = network_.weights.layers[layer_idx];
    const auto q = qk.first(config.q_size());
    const auto k = qk.subspan(config.q_size());
    Normalise(q, layer.q_norm, q);
    Normalise(k, layer.k_norm, k);
  }
  if (config.positions != PositionKind::kRotary) return;
  const bool is_local = config.local_rope && config.window(layer_idx) > 0;
  const RotaryTable& table = is_local ? network_.local_rotary : network_.rotary;
  table.Rotate(qk, config.num_heads + config.num_kv_heads, position);
}

// Moves the rows of x_ and qkv_ whose tokens want logits together, in the
// order of the logits, and returns them as a batch.
TransformerPass::Batch TransformerPass::KeepLogitsTokens(const StepPlan& plan,
                                                         RowRange rows) {
  Batch kept;
  for (int i = rows.begin; i < rows.end; ++i) {
    const PlanRow& row = plan.rows[i];
    const int num_dropped = row.num_tokens - row.num_logits;
    kept.rows.push_back({.first_token = kept.num_tokens,
                         .num_tokens = row.num_logits,
                         .first_position = row.first_position + num_dropped,
                         .pages = plan.row_pages(i)});
    kept.num_tokens += row.num_logits;
  }
  const auto keep_rows = [&](AlignedVector<float>& buffer, int num_cols) {
    auto to = FirstRows(kept_, kept.num_tokens, num_cols).begin();
    int end = 0;
    for (int i = rows.begin; i < rows.end; ++i) {
      end += plan.rows[i].num_tokens;
      const auto kept_rows =
          RowsBetween(std::span<const float>(buffer),
                      end - plan.rows[i].num_logits, end, num_cols);
      to = std::ranges::copy(kept_rows, to).out;
    }
    std::swap(buffer, kept_);
  };
  const TransformerConfig& config = network_.config;
  keep_rows(x_, config.hidden_size);
  keep_rows(qkv_, config.q_size() + 2 * config.kv_size());
  return kept;
}

void TransformerPass::AttendAndAdd(int layer_idx, const Batch& batch,
                                   const KvLayer& kv_layer) {
  const TransformerConfig& config = network_.config;
  const TransformerLayerWeights& layer = network_.weights.layers[layer_idx];
  const AttentionOptions options = {
      .scale = config.attention_scale(),
      .soft_cap = static_cast<float>(config.attention_soft_cap),
      .window = config.window(layer_idx)};
  const auto attended = FirstRows(attended_, batch.num_tokens, config.q_size());
  Attention(batch.rows, qkv_.data(), layer.qkv.matrix.num_rows(),
            config.num_heads, kv_layer, attended, *pool_, options);
  const auto branch = FirstRows(branch_, batch.num_tokens, config.hidden_size);
  Multiply(attended, layer.output, branch);
  AddAndNormalise(branch, layer.post_attention_norm, layer.mlp_norm,
                  batch.num_tokens);
}

void TransformerPass::FeedForwardAndAdd(const TransformerLayerWeights& layer,
                                        int num_tokens,
                                        const NormWeights& next_norm) {
  const int size = network_.config.intermediate_size;
  const int width = layer.gate_up.matrix.num_rows();
  const auto gate_up = FirstRows(gate_up_, num_tokens, width);
  MatMul(Normed(num_tokens), layer.gate_up.matrix, gate_up, *pool_);
  const bool has_gate = network_.config.has_gate;
  const auto gated = has_gate ? FirstRows(gated_, num_tokens, size) : gate_up;
  ForRowBlocks(num_tokens, [&](int begin, int end) {
    const auto rows = RowsBetween(gate_up, begin, end, width);
    if (!layer.gate_up.bias.empty()) AddToRows(layer.gate_up.bias, rows);
    Activate(rows, RowsBetween(gated, begin, end, size));
  });
  const auto branch =
      FirstRows(branch_, num_tokens, network_.config.hidden_size);
  Multiply(gated, layer.down, branch);
  AddAndNormalise(branch, layer.post_mlp_norm, next_norm, num_tokens);
}

void TransformerPass::Activate(std::span<float> gate_up,
                               std::span<float> gated) const {
  const int size = network_.config.intermediate_size;
  if (!network_.config.has_gate) {
    GeluInPlace(gate_up);
  } else if (network_.config.activation == Activation::kSilu) {
    SiluMul(gate_up, size, gated);
  } else {
    GeluMul(gate_up, size, gated);
  }
}

void TransformerPass::WriteLogits(std::span<float> logits, int num_tokens) {
  MatMul(Normed(num_tokens), network_.weights.head, logits, *pool_);
  const auto cap = static_cast<float>(network_.config.logit_soft_cap);
  if (cap == 0) return;
  ForRowBlocks(num_tokens, [&](int begin, int end) {
    SoftCapInPlace(cap,
                   RowsBetween(logits, begin, end, network_.config.vocab_size));
  });
}

template <typename Body>
void TransformerPass::ForRowBlocks(int num_rows, const Body& body) {
  const int num_blocks = (num_rows + kRowBlock - 1) / kRowBlock;
  pool_->ParallelFor(num_blocks, [&](int block) {
    const int begin = block * kRowBlock;
    body(begin, std::min(begin + kRowBlock, num_rows));
  });
}

std::span<const float> TransformerPass::Normed(int num_tokens) const {
  return std::span(normed_).first(size_t(num_tokens) *
                                  network_.config.hidden_size);
}

void TransformerPass::Multiply(std::span<const float> x,
                               const ProductWeights& product,
                               std::span<float> y) {
  MatMul(x, product.matrix, y, *pool_);
  if (product.bias.empty()) return;
  const int size = product.matrix.num_rows();
  ForRowBlocks(static_cast<int>(y.size() / size), [&](int begin, int end) {
    AddToRows(product.bias, RowsBetween(y, begin, end, size));
  });
}

void TransformerPass::Normalise(std::span<const float> x,
                                const NormWeights& norm,
                                std::span<float> out) const {
  const auto epsilon = static_cast<float>(network_.config.norm_eps);
  if (network_.config.norm == NormKind::kLayer) {
    LayerNorm(x, norm.weight, norm.bias, epsilon, out);
  } else {
    RmsNorm(x, norm.weight, epsilon, out);
  }
}

void TransformerPass::AddAndNormalise(std::span<float> branch,
                                      const NormWeights& post_norm,
                                      const NormWeights& next_norm,
                                      int num_tokens) {
  const int size = network_.config.hidden_size;
  const auto x = FirstRows(x_, num_tokens, size);
  const auto normed = FirstRows(normed_, num_tokens, size);
  ForRowBlocks(num_tokens, [&](int begin, int end) {
    const auto added = RowsBetween(branch, begin, end, size);
    const auto sum = RowsBetween(x, begin, end, size);
    if (!post_norm.weight.empty()) Normalise(added, post_norm, added);
    AddInPlace(added, sum);
    Normalise(sum, next_norm, RowsBetween(normed, begin, end, size));
  });
}

}  // namespace espalier
