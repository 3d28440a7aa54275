// The page map of a trace as SVG: one row per page, and one column per step,
// below the column of the tree. A cell's colour shows the number of sequences
// that hold the page while the step runs.
#pragma once

#include <string>
#include <vector>

#include "trace/trace_layout.h"
#include "trace/trace_tree.h"

namespace espalier {

struct PageMap {
  // Content of an <svg> element. Cells have class "p", the step in data-s and
  // the page in data-p.
  std::string drawing;
  double height = 0;
  int num_pages = 0;    // rows
  int max_holders = 0;  // per page
};

PageMap DrawPageMap(const TraceTree& tree, const TraceLayout& layout);

}  // namespace espalier
