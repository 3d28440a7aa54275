// A trace as SVG: the tree, the winners lit. A file of its own, readable in
// light and dark, and the drawing within the HTML page.
#pragma once

#include <deque>
#include <string>

#include "trace/trace_layout.h"
#include "trace/trace_tree.h"

namespace espalier {

// The drawing of one tree, the inside of an <svg>. Elements of candidate 5 are
// of class "n" (its dot and label) and "e" (the line to it), with data-n="5".
std::string TreeDrawing(const TraceTree& tree, const TraceLayout& layout);

// A whole file: the requests one below the other, each with its hypotheses.
std::string RenderTraceSvg(const std::deque<TraceTree>& trees);

// A line from top to bottom where the request was preempted, for the tree and
// for what has its columns.
std::string PreemptionMarks(const TraceTree& tree, const TraceLayout& layout,
                            double height);

}  // namespace espalier
