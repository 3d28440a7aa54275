// CudaGraphCache: an LRU cache of captured graphs, by shape. A graph holds
// device memory (some kilobytes per kernel), and mixtures of requests produce
// ever new shapes, so the number of graphs is bounded. CUDA frees a graph that
// is evicted while the device runs it when it has run.
//
// A step can always run without its graph. If memory for a graph runs out, the
// cache evicts graphs, least recently used first, until the capture succeeds.
// If it fails with an empty cache, Get() returns null and does not capture for
// a while, because a capture takes milliseconds.
//
//   CudaGraphCache<Shape, CudaGraph> graphs(128);
//   ASSIGN_OR_RETURN(const CudaGraph* graph, graphs.Get(shape, capture));
//   if (graph == nullptr) return EnqueueAll(shape);
//
// Plain C++: tests have graphs of their own. Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

template <typename Shape, typename Graph>
class CudaGraphCache {
 public:
  // Number of cache misses that return null without a capture, after a capture
  // that ran out of memory.
  static constexpr int kPause = 256;

  // REQUIRES: max_graphs >= 0; with 0, Get() always returns null.
  explicit CudaGraphCache(int max_graphs) : max_graphs_(max_graphs) {}

  // Returns the graph of `shape`, captured by `capture` if the cache lacks it;
  // null if no graph is available. Valid until the next call. `capture` returns
  // absl::StatusOr<Graph>.
  // Errors: those of `capture`, except kResourceExhausted.
  template <typename Capture>
  absl::StatusOr<const Graph*> Get(const Shape& shape, const Capture& capture) {
    const auto found = graphs_.find(shape);
    if (found != graphs_.end()) {
      found->second.last_used = ++clock_;
      return &found->second.graph;
    }
    if (max_graphs_ == 0) return nullptr;
    if (pause_ > 0) {
      --pause_;
      return nullptr;
    }
    if (size() == max_graphs_) Evict();
    for (;;) {
      absl::StatusOr<Graph> graph = capture();
      if (graph.ok()) return Keep(shape, *std::move(graph));
      if (!absl::IsResourceExhausted(graph.status())) return graph.status();
      if (graphs_.empty()) break;
      Evict();
    }
    pause_ = kPause;
    return nullptr;
  }

  int size() const { return static_cast<int>(graphs_.size()); }
  int64_t num_captured() const { return num_captured_; }  // since construction

 private:
  struct Kept {
    Graph graph;
    int64_t last_used = 0;
  };

  const Graph* Keep(const Shape& shape, Graph graph) {
    const auto kept =
        graphs_.emplace(shape, Kept{std::move(graph), ++clock_}).first;
    ++num_captured_;
    return &kept->second.graph;
  }

  // A linear search is cheap compared with the capture that follows.
  void Evict() {
    graphs_.erase(std::min_element(
        graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
          return a.second.last_used < b.second.last_used;
        }));
  }

  const int max_graphs_;
  std::map<Shape, Kept> graphs_;
  int64_t clock_ = 0;
  int64_t num_captured_ = 0;
  int pause_ = 0;
};

}  // namespace espalier
