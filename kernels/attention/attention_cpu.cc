#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_query.h"

namespace espalier {
namespace {

// Below this many multiply-adds a step's attention is not worth waking
// threads for.
constexpr int64_t kMinParallelWork = 1 << 15;

// Floats of one slot: all key/value heads.
size_t SlotSize(const KvLayer& layer) {
  return size_t(layer.num_kv_heads) * layer.head_dim;
}

float* Slot(std::span<float> cache, const KvLayer& layer, PageId page,
            int slot) {
  const size_t index = size_t(page.value) * layer.page_size + slot;
  DCHECK((index + 1) * SlotSize(layer) <= cache.size()) << "page " << page;
  return cache.data() + index * SlotSize(layer);
}

// One query token of the batch.
struct QueryToken {
  const AttentionRow* row;
  int token;  // index in the packed batch
  int position;
};

std::vector<QueryToken> ListTokens(std::span<const AttentionRow> rows) {
  std::vector<QueryToken> tokens;
  for (const AttentionRow& row : rows) {
    for (int i = 0; i < row.num_tokens; ++i) {
      tokens.push_back({&row, row.first_token + i, row.first_position + i});
    }
  }
  return tokens;
}

int64_t NumPositions(std::span<const QueryToken> tokens) {
  int64_t sum = 0;
  for (const QueryToken& token : tokens) sum += token.position + 1;
  return sum;
}

}  // namespace

void StoreKeyValues(std::span<const AttentionRow> rows, const float* k,
                    const float* v, int stride, KvLayer& layer) {
  for (const AttentionRow& row : rows) {
    for (int i = 0; i < row.num_tokens; ++i) {
      const int position = row.first_position + i;
      const PageId page = row.pages[position / layer.page_size];
      const int slot = position % layer.page_size;
      const int64_t offset = int64_t{row.first_token + i} * stride;
      std::copy_n(k + offset, SlotSize(layer),
                  Slot(layer.keys, layer, page, slot));
      std::copy_n(v + offset, SlotSize(layer),
                  Slot(layer.values, layer, page, slot));
    }
  }
}

void Attention(std::span<const AttentionRow> rows, const float* q, int q_stride,
               int num_heads, const KvLayer& layer, std::span<float> out,
               ThreadPool& pool) {
  CHECK_EQ(num_heads % layer.num_kv_heads, 0);
  const std::vector<QueryToken> tokens = ListTokens(rows);
  CHECK_GE(out.size(), tokens.size() * num_heads * layer.head_dim);
  const int group_size = num_heads / layer.num_kv_heads;
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
        .num_positions = token.position + 1,
        .pages = token.row->pages,
        .page_size = layer.page_size,
        .keys = layer.keys.data() + kv_head * layer.head_dim,
        .values = layer.values.data() + kv_head * layer.head_dim,
        .slot_stride = SlotSize(layer),
    });
  };
  const int num_tasks = static_cast<int>(tokens.size()) * layer.num_kv_heads;
  if (NumPositions(tokens) * num_heads * layer.head_dim < kMinParallelWork) {
    for (int task = 0; task < num_tasks; ++task) attend(task);
  } else {
    pool.ParallelFor(num_tasks, attend);
  }
}

void CopyPages(std::span<const PageCopy> copies, KvLayer& layer) {
  for (const PageCopy& copy : copies) {
    const size_t count = copy.num_tokens * SlotSize(layer);
    for (const std::span<float> cache : {layer.keys, layer.values}) {
      std::copy_n(Slot(cache, layer, copy.from, 0), count,
                  Slot(cache, layer, copy.to, 0));
    }
  }
}

}  // namespace espalier
