// The encoder's part of a pass: from the tokens of sources to the keys and
// values of cross-attention in their pages.
#include <algorithm>

#include "kernels/kv_cache/kv_layer.h"
#include "kernels/matmul/matmul.h"
#include "model/transformer_pass.h"

namespace espalier {
namespace {

std::span<const PlanSource> SourcesOf(const StepPlan& plan, RowRange rows) {
  const auto row_of = &PlanSource::row;
  const auto begin =
      std::ranges::lower_bound(plan.sources, rows.begin, {}, row_of);
  const auto end = std::ranges::lower_bound(plan.sources, rows.end, {}, row_of);
  return {begin, end};
}

int LongestOf(std::span<const PlanSource> sources) {
  size_t longest = 0;
  for (const PlanSource& source : sources) {
    longest = std::max(longest, source.tokens->size());
  }
  return static_cast<int>(longest);
}

std::span<float> GrownTo(AlignedVector<float>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
  return std::span(buffer).first(size);
}

}  // namespace

// While the encoder runs, source i has its keys and values in page i of a layer
// whose pages hold the longest of them.
bool TransformerPass::ReadSources(const StepPlan& plan, RowRange rows) {
  const std::span<const PlanSource> sources = SourcesOf(plan, rows);
  if (sources.empty()) return true;
  const TransformerConfig& config = network_.config();
  const TransformerStackWeights& encoder = network_.weights->encoder;
  std::vector<PageId> pages;
  for (int i = 0; i < std::ssize(sources); ++i) pages.push_back(PageId{i});
  Batch batch;
  for (size_t i = 0; i < sources.size(); ++i) {
    const int length = static_cast<int>(sources[i].tokens->size());
    AddTokens(*sources[i].tokens,
              {.num_tokens = length,
               .pages = std::span(pages).subspan(i, 1),
               .num_keys = length},
              /*source_length=*/0, {}, &batch);
  }
  const int longest = LongestOf(sources);
  const size_t size = sources.size() * longest * config.kv_size();
  KvLayer kv_layer = {.keys = GrownTo(source_keys_, size),
                      .values = GrownTo(source_values_, size),
                      .page_size = longest,
                      .num_kv_heads = config.num_kv_heads,
                      .head_dim = config.head_dim};
  Embed(batch, encoder);
  for (int i = 0; i < std::ssize(encoder.layers); ++i) {
    if (plan.stop.stop_requested()) return false;
    StoreProjections(i, encoder.layers[i], batch, kv_layer);
    AttendAndAdd(encoder, i, OptionsOf(encoder, /*window=*/0), batch, kv_layer);
    FeedForwardAndAdd(encoder, i, batch.num_tokens);
  }
  StoreSources(plan, sources, batch.num_tokens);
  return true;
}

// Computes the decoder's cross-attention keys and values of the encoder's
// output, which is in normed_.
void TransformerPass::StoreSources(const StepPlan& plan,
                                   std::span<const PlanSource> sources,
                                   int num_tokens) {
  const int kv_size = network_.config().kv_size();
  std::vector<PagedRow> rows;
  int first_token = 0;
  for (const PlanSource& source : sources) {
    const PlanRow& row = plan.rows[source.row];
    const int length = static_cast<int>(source.tokens->size());
    const int end = std::min(length, row.first_position + row.num_tokens);
    rows.push_back({.first_token = first_token + row.first_position,
                    .num_tokens = end - row.first_position,
                    .first_position = row.first_position,
                    .pages = plan.row_pages(source.row)});
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
