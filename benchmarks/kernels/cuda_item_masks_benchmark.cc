// Making masks of items on a GPU: of catalogues of random items, four tokens of
// 13 bits each, for up to 5,000 different states of each level. The second
// level is the widest: of 10^7 items a state has 1,130 tokens there.
//
//   cuda_item_masks_benchmark [ITEMS...]     100000 and 10000000 by default
//
// First builds each catalogue on one core and on the GPU, and prints the
// milliseconds of both: on the GPU the least of three, from and to memory of
// the host that is not pinned.
//
// Prints microseconds per call, the median over replays of a graph of calls,
// beside the bytes that a call must move: the masks, and the tokens of the
// states. Replays follow each other, so that much of the trie is in the cache.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/cuda.h"
#include "base/stopwatch.h"
#include "benchmarks/cuda_replays.h"
#include "constrain/item_catalogue.h"
#include "constrain/item_constraint.h"
#include "constrain/item_trie_builder.h"
#include "kernels/constrain/cuda_item_masks.h"
#include "kernels/constrain/cuda_item_tables.h"
#include "kernels/constrain/cuda_item_trie_builder.h"
#include "kernels/constrain/token_masks.h"

namespace espalier {
namespace {

constexpr int kVocabSize = 1 << 13;
constexpr int kLength = 4;
constexpr int kMaxStates = 5000;
constexpr int kNumCalls = 16;

TokenLists RandomItems(int64_t num_items) {
  std::mt19937 random(1);
  TokenLists items;
  items.tokens.reserve(num_items * kLength);
  items.ends.reserve(num_items);
  for (int64_t i = 0; i < num_items; ++i) {
    for (int j = 0; j < kLength; ++j) {
      items.tokens.push_back(static_cast<TokenId>(random() % kVocabSize));
    }
    items.EndList();
  }
  return items;
}

// Also prints how long it takes.
std::shared_ptr<const ItemCatalogue> BuildRandom(int64_t num_items,
                                                 cudaStream_t stream) {
  const TokenLists items = RandomItems(num_items);
  const Stopwatch host_watch;
  const ItemTrieArrays host = BuildItemTrie(items);
  const absl::Duration host_time = host_watch.Elapsed();
  absl::Duration time = absl::InfiniteDuration();
  ItemTrieArrays trie;
  for (int i = 0; i < 3; ++i) {
    const Stopwatch watch;
    trie = Get(CudaBuildItemTrie(items.tokens, items.ends, stream));
    time = std::min(time, watch.Elapsed());
  }
  CHECK(trie == host);
  std::printf("%lld items built in %.0f ms on the host, %.1f ms on the GPU\n",
              static_cast<long long>(num_items),
              absl::ToDoubleMilliseconds(host_time),
              absl::ToDoubleMilliseconds(time));
  return std::make_shared<const ItemCatalogue>(std::move(trie));
}

class Items {
 public:
  explicit Items(std::shared_ptr<const ItemCatalogue> items)
      : constraint_(std::move(items)),
        on_device_(Get(CudaItemTables::Create(
            constraint_.item_tables(),
            std::make_shared<const CudaItemTrie>(
                Get(CudaItemTrie::Create(constraint_.item_tables().trie)))))),
        tables_(Get(Upload(std::vector<CudaConstraint>{
            {.tables = {.vocab_size = kVocabSize,
                        .items = on_device_.tables()}}}))),
        masks_(Get(DeviceBuffer<uint32_t>::Create(size_t{kMaxStates} *
                                                  NumMaskWords(kVocabSize)))),
        continuing_(Get(DeviceBuffer<uint32_t>::Create(masks_.size()))) {}

  // Prints a line for the states of a level.
  void Time(int level, const CudaDevice& device, cudaStream_t stream) const {
    const std::vector<CudaMaskJob> jobs = JobsOf(level);
    const auto num_jobs = static_cast<int>(jobs.size());
    const auto cache =
        Get(Upload(std::vector<CudaMaskCache>{{.num_item_jobs = num_jobs}}));
    // They are last, in reverse order.
    std::vector<CudaMaskJob> all(size_t{2} * kMaxStates);
    std::ranges::reverse_copy(jobs, all.end() - num_jobs);
    const auto device_jobs = Get(Upload(all));
    const CudaGraph graph = Get(CaptureGraph(stream, [&] {
      for (int i = 0; i < kNumCalls; ++i) {
        RETURN_IF_ERROR(CudaMakeItemMasks({.vocab_size = kVocabSize,
                                           .num_rows = kMaxStates,
                                           .constraints = tables_.data(),
                                           .cache = cache.data(),
                                           .jobs = device_jobs.data()},
                                          {masks_.data(), continuing_.data()},
                                          device, stream));
      }
      return absl::OkStatus();
    }));
    int64_t num_tokens = 0;
    for (const CudaMaskJob& job : jobs) {
      num_tokens += constraint_.items().Children(job.state).size();
    }
    const int64_t mask_bytes =
        int64_t{2} * num_jobs * NumMaskWords(kVocabSize) * sizeof(uint32_t);
    std::printf("%10lld %6d %7d %9.1f %9.2f %9.2f\n",
                static_cast<long long>(constraint_.items().num_items()), level,
                num_jobs, static_cast<double>(num_tokens) / num_jobs,
                static_cast<double>(mask_bytes + num_tokens * 4) / 1e6,
                Get(MedianMicroseconds(graph, kNumCalls, stream)));
  }

 private:
  // States spread over the level.
  std::vector<CudaMaskJob> JobsOf(int level) const {
    const ItemTrie trie = constraint_.items().trie();
    const int64_t begin = trie.level_begins[level];
    const int64_t size = trie.level_begins[level + 1] - begin;
    const auto num_jobs = static_cast<int>(std::min<int64_t>(size, kMaxStates));
    std::vector<CudaMaskJob> jobs;
    for (int j = 0; j < num_jobs; ++j) {
      jobs.push_back(
          {.state = static_cast<int32_t>(begin + size * j / num_jobs),
           .room = kLength - level,
           .mask = j});
    }
    return jobs;
  }

  const ItemConstraint constraint_;
  const CudaItemTables on_device_;
  const DeviceBuffer<CudaConstraint> tables_;
  const DeviceBuffer<uint32_t> masks_;
  const DeviceBuffer<uint32_t> continuing_;
};

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;  // NOLINT
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    int64_t size = 0;
    CHECK(absl::SimpleAtoi(argv[i], &size) && size > 0) << argv[i];
    sizes.push_back(size);
  }
  if (sizes.empty()) sizes = {100'000, 10'000'000};
  const CudaDevice device = Get(CudaDevice::Open(0));
  const CudaStream stream = Get(CudaStream::Create());
  std::printf("%s\n", device.name.c_str());
  for (const int64_t num_items : sizes) {
    const Items items(BuildRandom(num_items, stream.get()));
    std::printf("%10s %6s %7s %9s %9s %9s\n", "items", "level", "states",
                "tokens", "MB", "us");
    for (int level = 0; level < kLength; ++level) {
      items.Time(level, device, stream.get());
    }
  }
  return 0;
}
