// Traces of searches: lines are read or refused, an event is written as a line
// that reads as the same event, and a trace whose events fit together is drawn
// in every format, with each candidate once in the tree.
#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trace/trace_dot.h"
#include "trace/trace_html.h"
#include "trace/trace_json.h"
#include "trace/trace_svg.h"
#include "trace/trace_text.h"
#include "trace/trace_tree.h"

namespace espalier::fuzz {
namespace {

// A lane for each slot.
bool IsLarge(const TraceTrees& trees) {
  constexpr int kManySlots = 100;
  for (const TraceTree& tree : trees.trees()) {
    if (tree.num_slots > kManySlots) return true;
  }
  return false;
}

int Count(std::string_view text, std::string_view part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++count;
  return count;
}

// Edges are lines of their own; a text is in quotes, behind a "[".
int CountEdges(std::string_view dot) {
  int count = 0;
  while (!dot.empty()) {
    const std::string_view line = dot.substr(0, dot.find('\n'));
    dot.remove_prefix(std::min(line.size() + 1, dot.size()));
    const size_t arrow = line.find(" -> t");
    if (line.starts_with("    t") && arrow < line.find('[')) ++count;
  }
  return count;
}

void Draw(const TraceTrees& trees) {
  int num_nodes = 0;
  for (const TraceTree& tree : trees.trees()) num_nodes += tree.nodes.size();
  CHECK_EQ(CountEdges(RenderTraceDot(trees.trees())), num_nodes);
  CHECK_EQ(Count(RenderTraceSvg(trees.trees()), "<path class=\"e "), num_nodes);
  CHECK_EQ(Count(RenderTraceHtml(trees.trees()), "<path class=\"e "),
           num_nodes);
  CHECK(trees.trees().empty() || !RenderTraceText(trees.trees()).empty());
}

}  // namespace

FUZZ_TARGET(trace_lines, input) {
  TraceTrees trees;
  while (!input.empty()) {
    const size_t end = input.find('\n');
    const std::string_view line = input.substr(0, end);
    input.remove_prefix(end == input.npos ? input.size() : end + 1);
    const absl::StatusOr<TraceEvent> event = ParseTraceLine(line);
    if (!event.ok()) {
      CheckBadInput(event.status());
      continue;
    }
    const std::string written = WriteTraceLine(*event);
    const absl::StatusOr<TraceEvent> again = ParseTraceLine(written);
    CHECK(again.ok()) << written << ": " << again.status();
    CHECK(*again == *event) << written;
    const absl::Status added = trees.Add(*event);
    if (!added.ok()) CheckBadInput(added);
  }
  if (!IsLarge(trees)) Draw(trees);
}

}  // namespace espalier::fuzz
