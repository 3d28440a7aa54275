// DfaEdges: a deterministic automaton while it is built, as a list of
// transitions. It may have states that are equal, or that lead to no text;
// BuildAutomaton (automaton_builder.h) removes them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace espalier {

struct DfaEdges {
  struct Edge {
    int32_t from = 0;
    int32_t byte_class = 0;  // index of its class of bytes
    int32_t to = 0;
  };

  // State 0 is the start. At most one edge for a state and class.
  std::vector<Edge> edges = {};
  std::vector<uint8_t> accepts = {};  // [num_states]  0 or 1
  // Classes are numbered by their smallest byte.
  std::array<uint8_t, 256> classes = {};
  int num_classes = 1;

  int num_states() const { return static_cast<int>(accepts.size()); }
};

}  // namespace espalier
