// The page map of a trace as SVG: a row a page, a column a step under that of
// the tree, coloured by how many sequences hold the page while the step runs.
#pragma once

#include <string>
#include <vector>

#include "trace/trace_layout.h"
#include "trace/trace_tree.h"

namespace espalier {

struct PageMap {
  // The inside of an <svg>. Cells are of class "p", with the step in data-s and
  // the page in data-p.
  std::string drawing;
  double height = 0;
  int num_pages = 0;    // rows
  int max_holders = 0;  // of a page
};

PageMap DrawPageMap(const TraceTree& tree, const TraceLayout& layout);

}  // namespace espalier
