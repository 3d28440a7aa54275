// A trace as a graph in Graphviz's language: `dot -Tsvg` lays it out. The same
// node for each candidate as in the other pictures; winners are bold,
// pruned candidates pale.
#pragma once

#include <deque>
#include <string>

#include "trace/trace_tree.h"

namespace espalier {

std::string RenderTraceDot(const std::deque<TraceTree>& trees);

}  // namespace espalier
