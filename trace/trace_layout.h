// TraceLayout: positions in the drawing of a trace. Steps are columns from left
// to right. Slots are lanes from top to bottom; a beam that keeps its slot is a
// straight line. A column:
//
//          label of the parent    bend     dot, and its label
//   lane 0 ●  ·Quel ──────────────┬────── ● ·âge
//                                 └────── ○ ·ans        (pruned: a half lane)
//   lane 1 ●  ·Comment ─────────────────── ● ·vieux
//
// Candidates that are not kept have half lanes between the lanes, as near to
// their parents' lanes as possible and in the order of their parents, so that
// their lines do not cross. Lines bend in a strip without labels, so that no
// line covers a label.
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
  std::vector<Point> nodes;     // [nodes], positions of dots
  std::vector<double> columns;  // [num_steps + 1], x of dots; 0 is the root's
  std::vector<double> bends;    // [num_steps + 1], x of bends before column i
  std::vector<double> lanes;    // [num_slots], y
  double width = 0;
  double height = 0;
};

// Maximum columns of a label, and of the root's; longer ones are shortened.
inline constexpr int kMaxLabelColumns = 18;
inline constexpr int kMaxRootLabelColumns = 40;

TraceLayout Layout(const TraceTree& tree);

// Returns the label of a node: its token, and its score if it finished.
std::string NodeLabel(const TraceNode& node);

// Returns the number of tokens that were legal after a node, which stands below
// its line: "3 legal"; "" if that is not known.
std::string LegalNote(const std::optional<TraceLegalRow>& legal);

// Returns the label of the root: the decoder prompt, or "".
std::string RootLabel(const TraceTree& tree);

}  // namespace espalier
