#include "trace/trace_layout.h"

#include <algorithm>
#include <string>

#include "base/status.h"
#include "trace/trace_label.h"

namespace espalier {
namespace {

constexpr double kColumnWidth = 7.2;      // a character of a label's font
constexpr double kNoteColumnWidth = 5.4;  // the same below a line
constexpr double kAboveLane = 21;         // its labels stand on its line
constexpr double kBelowLane = 8;
constexpr double kNoteHeight = 6;  // below it, if there are notes
constexpr double kHalfLaneHeight = 16;
constexpr double kBendWidth = 44;
constexpr double kLabelGap = 12;  // beside a label
constexpr double kLeft = 92;      // for the names of slots
constexpr double kTop = 34;       // for the numbers of steps
constexpr double kTail = 8;       // after the last label

// Returns the width of what is written at a line.
double LabelWidth(std::string_view label,
                  const std::optional<TraceLegalRow>& legal) {
  return std::max(kColumnWidth * NumColumns(label),
                  kNoteColumnWidth * NumColumns(LegalNote(legal)));
}

// Returns the nodes of a step that are not kept, in the order of their parents'
// slots.
std::vector<int> PrunedLeaves(const TraceTree& tree,
                              const std::vector<int>& step) {
  std::vector<int> twigs;
  for (const int node : step) {
    if (!tree.nodes[node].kept()) twigs.push_back(node);
  }
  std::stable_sort(twigs.begin(), twigs.end(), [&](int a, int b) {
    return tree.nodes[a].candidate.parent_slot <
           tree.nodes[b].candidate.parent_slot;
  });
  return twigs;
}

// Returns the number of half lanes below each lane that every step needs.
int NumHalfLanes(const TraceTree& tree) {
  size_t most = 0;
  for (const std::vector<int>& step : tree.steps) {
    most = std::max(most, PrunedLeaves(tree, step).size());
  }
  return static_cast<int>((most + tree.num_slots - 1) / tree.num_slots);
}

// Assigns half lanes to `twigs`: each gets the first free one from its parent's
// lane on; then, from the end, those beyond the last half lane move back.
std::vector<int> HalfLanes(const TraceTree& tree, const std::vector<int>& twigs,
                           int per_lane) {
  std::vector<int> places;
  int next = 0;
  for (const int twig : twigs) {
    const int wanted = tree.nodes[twig].candidate.parent_slot * per_lane;
    places.push_back(std::max(next, wanted));
    next = places.back() + 1;
  }
  int end = tree.num_slots * per_lane;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    end = std::min(*place, end - 1);
    *place = end;
  }
  return places;
}

// Returns the height below each lane's line and what stands there.
double BelowLane(const TraceTree& tree) {
  const bool has_notes =
      tree.first_legal || std::ranges::any_of(tree.nodes, [](const auto& node) {
        return node.legal.has_value();
      });
  return has_notes ? kBelowLane + kNoteHeight : kBelowLane;
}

void PlaceColumns(const TraceTree& tree, TraceLayout* layout) {
  double x = kLeft;
  // The widest label of the previous column.
  double label = LabelWidth(RootLabel(tree), tree.first_legal);
  layout->columns = {x};
  layout->bends = {x};
  for (const std::vector<int>& step : tree.steps) {
    const double bend = x + (label > 0 ? label + 2 * kLabelGap : kLabelGap);
    x = bend + kBendWidth;
    layout->bends.push_back(bend);
    layout->columns.push_back(x);
    label = 0;
    for (const int id : step) {
      const TraceNode& node = tree.nodes[id];
      label = std::max(label, LabelWidth(NodeLabel(node), node.legal));
    }
  }
  layout->width = x + kLabelGap + label + kTail;
}

}  // namespace

TraceLayout Layout(const TraceTree& tree) {
  TraceLayout layout;
  PlaceColumns(tree, &layout);
  const int per_lane = NumHalfLanes(tree);
  const double below = BelowLane(tree);
  const double lane_height = kAboveLane + below + per_lane * kHalfLaneHeight;
  for (int slot = 0; slot < tree.num_slots; ++slot) {
    layout.lanes.push_back(kTop + kAboveLane + slot * lane_height);
  }
  layout.height = kTop + tree.num_slots * lane_height;
  layout.root = {layout.columns[0], layout.lanes[0]};
  layout.nodes.resize(tree.nodes.size());
  for (int step = 1; step <= tree.num_steps(); ++step) {
    const double x = layout.columns[step];
    for (const int node : tree.steps[step - 1]) {
      const std::optional<int>& slot = tree.nodes[node].candidate.slot;
      if (slot) layout.nodes[node] = {x, layout.lanes[*slot]};
    }
    const std::vector<int> twigs = PrunedLeaves(tree, tree.steps[step - 1]);
    const std::vector<int> places = HalfLanes(tree, twigs, per_lane);
    for (size_t i = 0; i < twigs.size(); ++i) {
      const int half = places[i] % per_lane;
      layout.nodes[twigs[i]] = {x, layout.lanes[places[i] / per_lane] + below +
                                       kHalfLaneHeight * (half + 0.5)};
    }
  }
  return layout;
}

std::string RootLabel(const TraceTree& tree) {
  return Shortened(DecoderPromptLabel(tree), kMaxRootLabelColumns);
}

std::string LegalNote(const std::optional<TraceLegalRow>& legal) {
  return legal ? NumLegalLabel(*legal) : "";
}

std::string NodeLabel(const TraceNode& node) {
  const TraceCandidate& candidate = node.candidate;
  std::string label = Shortened(TokenLabel(candidate), kMaxLabelColumns);
  if (candidate.score) label += Concat(" ", ScoreLabel(*candidate.score));
  if (node.end_of >= 0) label += Concat(" #", node.end_of + 1);
  return label;
}

}  // namespace espalier
