#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_query.h"

namespace espalier {
namespace {

// Below this many multiply-adds, waking threads costs more than it saves.
constexpr int64_t kMinParallelWork = 1 << 15;

// One query token of the batch.
struct QueryToken {
  const PagedRow* row;
  int token;  // index in the packed batch
  int position;

  // Returns the end of the positions that the token sees.
  int end() const { return row->num_keys > 0 ? row->num_keys : position + 1; }
};

std::vector<QueryToken> ListTokens(std::span<const PagedRow> rows) {
  std::vector<QueryToken> tokens;
  for (const PagedRow& row : rows) {
    for (int i = 0; i < row.num_tokens; ++i) {
      tokens.push_back({&row, row.first_token + i, row.first_position + i});
    }
  }
  return tokens;
}

int64_t NumPositions(std::span<const QueryToken> tokens,
                     const AttentionOptions& options) {
  int64_t sum = 0;
  for (const QueryToken& token : tokens) {
    sum += token.end() - options.FirstSeen(token.position);
  }
  return sum;
}

}  // namespace

void Attention(std::span<const PagedRow> rows, const float* q, int q_stride,
               int num_heads, const KvLayer& layer, std::span<float> out,
               ThreadPool& pool, const AttentionOptions& options) {
  CHECK_EQ(num_heads % layer.num_kv_heads, 0);
  for (const PagedRow& row : rows) {
    CHECK(row.num_keys == 0 || options.window == 0) << "a window of given keys";
  }
  const std::vector<QueryToken> tokens = ListTokens(rows);
  CHECK_GE(out.size(), tokens.size() * num_heads * layer.head_dim);
  const int group_size = num_heads / layer.num_kv_heads;
  const float scale =
      options.scale > 0 ? options.scale
                        : 1.0f / std::sqrt(static_cast<float>(layer.head_dim));
  auto attend = [&](int task) {
    const QueryToken& token = tokens[task / layer.num_kv_heads];
    const int kv_head = task % layer.num_kv_heads;
    const int head_offset = kv_head * group_size * layer.head_dim;
    AttendOne({
        .q = q + int64_t{token.token} * q_stride + head_offset,
        .out = out.data() + int64_t{token.token} * num_heads * layer.head_dim +
               head_offset,
        .num_queries = group_size,
        .head_dim = layer.head_dim,
        .first_position = options.FirstSeen(token.position),
        .num_positions = token.end(),
        .scale = scale,
        .soft_cap = options.soft_cap,
        .biases = options.biases == nullptr
                      ? nullptr
                      : options.biases + size_t(kv_head) * group_size *
                                             (2 * options.max_distance + 1),
        .max_distance = options.max_distance,
        .position = token.position,
        .pages = token.row->pages,
        .page_size = layer.page_size,
        .keys = layer.keys.data() + kv_head * layer.head_dim,
        .values = layer.values.data() + kv_head * layer.head_dim,
        .slot_stride = layer.slot_size(),
    });
  };
  const int num_tasks = static_cast<int>(tokens.size()) * layer.num_kv_heads;
  if (NumPositions(tokens, options) * num_heads * layer.head_dim <
      kMinParallelWork) {
    for (int task = 0; task < num_tasks; ++task) attend(task);
  } else {
    pool.ParallelFor(num_tasks, attend);
  }
}

}  // namespace espalier
