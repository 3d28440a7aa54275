// A trace as one HTML page that needs nothing else, no network and no library:
// the tree with the winners lit, a slider over the steps, a table on hover, and
// the page map. Data, drawings and tables are in it; trace_page.js, which makes
// them move, and the style sheets are built into the program.
#pragma once

#include <deque>
#include <string>

#include "trace/trace_tree.h"

namespace espalier {

std::string RenderTraceHtml(const std::deque<TraceTree>& trees);

}  // namespace espalier
