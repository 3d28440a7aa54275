// A trace as text for a terminal: the tree, one candidate a line, indented by
// step; ★ before what is on the path of the best hypothesis, ☆ before what is
// on those of the others.
#pragma once

#include <deque>
#include <string>

#include "trace/trace_tree.h"

namespace espalier {

std::string RenderTraceText(const std::deque<TraceTree>& trees);

}  // namespace espalier
