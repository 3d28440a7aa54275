// CudaGraphCache: captured graphs by shape, a bounded number of them. A graph
// holds device memory (some kilobytes a kernel), and mixtures of requests make
// shapes without end: beyond the bound the least recently used graph goes. What
// is destroyed here while the device runs it is freed when it has run.
//
// A step can always run without its graph. So where there is no memory for one,
// old graphs are given back, least recently used first, until there is; and if
// there is none even then, the cache says so, and does not try again at once:
// to capture takes milliseconds.
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
  // Shapes without a graph that are answered with null after there was no
  // memory for one.
  static constexpr int kPause = 256;

  // REQUIRES: max_graphs >= 0; of 0 every answer is null.
  explicit CudaGraphCache(int max_graphs) : max_graphs_(max_graphs) {}

  // The graph of `shape`, by `capture` if it is not there; null if it cannot be
  // had for now. Good until the next call. `capture` returns
  // absl::StatusOr<Graph>.
  // Errors: what `capture` returns, but kResourceExhausted.
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
  int64_t num_captured() const { return num_captured_; }  // ever

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

  // Looks at all of them, which is little beside the capture it is for.
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
