// DfaEdges: a deterministic automaton while it is built, as a list of
// transitions. It may have states that are equal, or that lead to no text;
// BuildAutomaton (automaton_builder.h) removes them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace espalier {

struct DfaEdges {
  // Leads from a state by the bytes of some classes, from `first` to `last`.
  struct Edge {
    int32_t from = 0;
    uint8_t first = 0;
    uint8_t last = 0;
    int32_t to = 0;

    int num_classes() const { return last - first + 1; }
  };

  // Adds an edge, or extends the last one if it has the same ends and its
  // classes end before `first`.
  void Add(int32_t from, int first, int last, int32_t to) {
    if (!edges.empty() && edges.back().from == from && edges.back().to == to &&
        edges.back().last + 1 == first) {
      edges.back().last = static_cast<uint8_t>(last);
    } else {
      edges.push_back(
          {from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), to});
    }
  }

  // State 0 is the start. At most one edge for a state and class.
  std::vector<Edge> edges = {};
  std::vector<uint8_t> accepts = {};  // [num_states]  0 or 1
  // Classes are numbered by their smallest byte.
  std::array<uint8_t, 256> classes = {};
  int num_classes = 1;

  int num_states() const { return static_cast<int>(accepts.size()); }
};

}  // namespace espalier
