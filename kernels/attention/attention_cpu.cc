#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_tile.h"

namespace espalier {
namespace {

// Below this many multiply-adds, waking threads costs more than it saves.
constexpr int64_t kMinParallelWork = 1 << 15;
// Tiles of queries are smaller where a thread would have fewer tasks.
constexpr int kTasksOfThread = 4;

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

// True if `b` sees keys in the pages of `a`, both from the first on: tokens of
// one sequence, or that read one source.
bool ShareKeys(const QueryToken& a, const QueryToken& b,
               const AttentionOptions& options) {
  if (options.FirstSeen(b.position) > 0) return false;
  const std::span<const PageId> of_a = a.row->pages, of_b = b.row->pages;
  // Beams have their first pages in common, and not the last one.
  return of_a.size() == of_b.size() &&
         (of_a.data() == of_b.data() ||
          (of_a.back() == of_b.back() && std::ranges::equal(of_a, of_b)));
}

// Divides tokens into runs of at most `max_tokens` that share keys. Returns the
// ends of the runs.
std::vector<int> DivideTokens(std::span<const QueryToken> tokens,
                              int max_tokens, const AttentionOptions& options) {
  std::vector<int> ends;
  int first = 0;
  for (int i = 1; i <= std::ssize(tokens); ++i) {
    if (i < std::ssize(tokens) && i - first < max_tokens &&
        ShareKeys(tokens[first], tokens[i], options)) {
      continue;
    }
    ends.push_back(i);
    first = i;
  }
  return ends;
}

// Returns the queries of the tokens: [num_kv_heads, num_tokens, heads that
// share a key/value head].
std::vector<TileQuery> ListQueries(std::span<const QueryToken> tokens,
                                   const float* q, int q_stride, int num_heads,
                                   const KvLayer& layer, std::span<float> out,
                                   const AttentionOptions& options) {
  const int group_size = num_heads / layer.num_kv_heads;
  std::vector<TileQuery> queries;
  queries.reserve(tokens.size() * num_heads);
  for (int kv_head = 0; kv_head < layer.num_kv_heads; ++kv_head) {
    for (const QueryToken& token : tokens) {
      for (int i = 0; i < group_size; ++i) {
        const int head = kv_head * group_size + i;
        queries.push_back({
            .q = q + int64_t{token.token} * q_stride + head * layer.head_dim,
            .out = out.data() +
                   (int64_t{token.token} * num_heads + head) * layer.head_dim,
            .biases = options.biases == nullptr
                          ? nullptr
                          : options.biases +
                                size_t(head) * (2 * options.max_distance + 1),
            .position = token.position,
            .num_positions = token.end(),
        });
      }
    }
  }
  return queries;
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
  const bool is_parallel =
      NumPositions(tokens, options) * num_heads * layer.head_dim >=
      kMinParallelWork;
  const int num_token_heads =
      static_cast<int>(tokens.size()) * layer.num_kv_heads;
  const int max_tokens =
      is_parallel
          ? std::clamp(num_token_heads / (kTasksOfThread * pool.num_threads()),
                       1, std::max(1, kMaxTileQueries / group_size))
          : std::max(1, kMaxTileQueries / group_size);
  const std::vector<int> ends = DivideTokens(tokens, max_tokens, options);
  const std::vector<TileQuery> queries =
      ListQueries(tokens, q, q_stride, num_heads, layer, out, options);
  const auto attend = [&](int task) {
    const int run = task / layer.num_kv_heads;
    const int kv_head = task % layer.num_kv_heads;
    const int first = run == 0 ? 0 : ends[run - 1];
    AttentionTile tile = {
        .head_dim = layer.head_dim,
        .first_position = options.FirstSeen(tokens[first].position),
        .scale = options.scale > 0
                     ? options.scale
                     : 1.0f / std::sqrt(static_cast<float>(layer.head_dim)),
        .soft_cap = options.soft_cap,
        .max_distance = options.max_distance,
        .pages = tokens[first].row->pages,
        .page_size = layer.page_size,
        .keys = layer.keys.data() + kv_head * layer.head_dim,
        .values = layer.values.data() + kv_head * layer.head_dim,
        .slot_stride = layer.slot_size()};
    // More than a tile has if very many heads share a key/value head.
    std::span<const TileQuery> rest = std::span(queries).subspan(
        (kv_head * tokens.size() + first) * group_size,
        size_t(ends[run] - first) * group_size);
    while (!rest.empty()) {
      tile.queries = rest.first(std::min<size_t>(rest.size(), kMaxTileQueries));
      AttendTile(tile);
      rest = rest.subspan(tile.queries.size());
    }
  };
  const int num_tasks = static_cast<int>(ends.size()) * layer.num_kv_heads;
  if (is_parallel) {
    pool.ParallelFor(num_tasks, attend);
  } else {
    for (int task = 0; task < num_tasks; ++task) attend(task);
  }
}

}  // namespace espalier
