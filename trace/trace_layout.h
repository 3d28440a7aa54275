// Where the picture of a trace puts things. Steps go from left to right, a
// column each; slots are lanes from top to bottom, and a beam that keeps its
// slot runs straight on. A column:
//
//          label of the parent    bend     dot, and its label
//   lane 0 ●  ·Quel ──────────────┬────── ● ·âge
//                                 └────── ○ ·ans        (pruned: a half lane)
//   lane 1 ●  ·Comment ─────────────────── ● ·vieux
//
// Candidates that do not live on take half lanes between the lanes, as near to
// their parent's as there is room, in the order of their parents, so that their
// lines do not cross. Lines bend in a strip where there are no labels. So
// nothing lies over a label, whatever the tree.
#pragma once

#include <vector>

#include "trace/trace_tree.h"

namespace espalier {

struct TraceLayout {
  struct Point {
    double x = 0;
    double y = 0;
  };
  // Pixels, y downwards.
  Point root;
  std::vector<Point> nodes;     // [nodes], of their dots
  std::vector<double> columns;  // [num_steps + 1], x of dots; 0 is the root's
  std::vector<double> bends;    // [num_steps + 1], where lines to column i bend
  std::vector<double> lanes;    // [num_slots], y
  double width = 0;
  double height = 0;
};

// Columns of a label at most, and of the root's; longer ones are shortened.
inline constexpr int kMaxLabelColumns = 18;
inline constexpr int kMaxRootLabelColumns = 40;

TraceLayout Layout(const TraceTree& tree);

// What stands at a node: its token, and if it finished its score.
std::string NodeLabel(const TraceNode& node);

// What stands at the root: what the decoder was given to go on from, or "".
std::string RootLabel(const TraceTree& tree);

}  // namespace espalier
