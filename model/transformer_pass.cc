#include "model/transformer_pass.h"

#include <algorithm>
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
  Embed(std::span(plan.tokens).subspan(first_token, batch.num_tokens));
  const int last = network_.config.num_layers - 1;
  for (int i = 0; i <= last; ++i) {
    const TransformerLayerWeights& layer = weights.layers[i];
    KvLayer kv_layer = network_.cache.layer(i);
    if (plan.stop.stop_requested()) return;
    StoreProjections(layer, batch, kv_layer);
    if (i == last) batch = KeepLogitsTokens(plan, rows);
    AttendAndAdd(layer, batch, kv_layer);
    FeedForwardAndAdd(
        layer, batch.num_tokens,
        i == last ? weights.final_norm : weights.layers[i + 1].attention_norm);
  }
  const int first_logits_row = FirstLogitsRow(plan, rows);
  MatMul(
      Normed(batch.num_tokens), weights.head(),
      RowsBetween(logits, first_logits_row, first_logits_row + batch.num_tokens,
                  network_.config.vocab_size),
      *pool_);
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

void TransformerPass::Embed(std::span<const TokenId> tokens) {
  const int size = network_.config.hidden_size;
  const int num_tokens = static_cast<int>(tokens.size());
  const auto x = FirstRows(x_, num_tokens, size);
  const auto normed = FirstRows(normed_, num_tokens, size);
  ForRowBlocks(num_tokens, [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      network_.weights.embedding.CopyRow(tokens[t],
                                         RowsBetween(x, t, t + 1, size));
    }
    RmsNorm(RowsBetween(x, begin, end, size),
            network_.weights.layers[0].attention_norm,
            network_.config.rms_norm_eps,
            RowsBetween(normed, begin, end, size));
  });
}

// Leaves the tokens' rotated q, k and v in qkv_, and k and v in their pages.
void TransformerPass::StoreProjections(const TransformerLayerWeights& layer,
                                       const Batch& batch, KvLayer& kv_layer) {
  const int stride = layer.qkv.num_rows();
  const auto qkv = FirstRows(qkv_, batch.num_tokens, stride);
  MatMul(Normed(batch.num_tokens), layer.qkv, qkv, *pool_);
  // k follows q, so both are one run of heads.
  const int num_rotated =
      network_.config.num_heads + network_.config.num_kv_heads;
  const float* k = qkv.data() + network_.config.q_size();
  pool_->ParallelFor(static_cast<int>(batch.rows.size()), [&](int i) {
    const PagedRow& row = batch.rows[i];
    for (int t = 0; t < row.num_tokens; ++t) {
      const size_t first = size_t(row.first_token + t) * stride;
      network_.rotary.Rotate(
          qkv.subspan(first, num_rotated * network_.config.head_dim),
          num_rotated, row.first_position + t);
    }
    StoreKeyValues(std::span(&row, 1), k, k + network_.config.kv_size(), stride,
                   kv_layer);
  });
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

void TransformerPass::AttendAndAdd(const TransformerLayerWeights& layer,
                                   const Batch& batch,
                                   const KvLayer& kv_layer) {
  const auto attended =
      FirstRows(attended_, batch.num_tokens, network_.config.q_size());
  Attention(batch.rows, qkv_.data(), layer.qkv.num_rows(),
            network_.config.num_heads, kv_layer, attended, *pool_);
  const auto branch =
      FirstRows(branch_, batch.num_tokens, network_.config.hidden_size);
  MatMul(attended, layer.output, branch, *pool_);
  AddAndNormalise(branch, layer.mlp_norm, batch.num_tokens);
}

void TransformerPass::FeedForwardAndAdd(const TransformerLayerWeights& layer,
                                        int num_tokens,
                                        std::span<const float> next_norm) {
  const int size = network_.config.intermediate_size;
  const auto gate_up = FirstRows(gate_up_, num_tokens, 2 * size);
  MatMul(Normed(num_tokens), layer.gate_up, gate_up, *pool_);
  const auto gated = FirstRows(gated_, num_tokens, size);
  ForRowBlocks(num_tokens, [&](int begin, int end) {
    SiluMul(RowsBetween(std::span<const float>(gate_up), begin, end, 2 * size),
            size, RowsBetween(gated, begin, end, size));
  });
  const auto branch =
      FirstRows(branch_, num_tokens, network_.config.hidden_size);
  MatMul(gated, layer.down, branch, *pool_);
  AddAndNormalise(branch, next_norm, num_tokens);
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

void TransformerPass::AddAndNormalise(std::span<const float> branch,
                                      std::span<const float> weight,
                                      int num_tokens) {
  const int size = network_.config.hidden_size;
  const auto x = FirstRows(x_, num_tokens, size);
  const auto normed = FirstRows(normed_, num_tokens, size);
  ForRowBlocks(num_tokens, [&](int begin, int end) {
    AddInPlace(RowsBetween(branch, begin, end, size),
               RowsBetween(x, begin, end, size));
    RmsNorm(RowsBetween(x, begin, end, size), weight,
            network_.config.rms_norm_eps,
            RowsBetween(normed, begin, end, size));
  });
}

}  // namespace espalier
