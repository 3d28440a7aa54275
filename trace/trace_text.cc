#include "trace/trace_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "trace/trace_label.h"

namespace espalier {
namespace {

std::string_view Mark(const TraceNode& node) {
  if (node.path_of == 0) return "★ ";
  if (node.lit()) return "☆ ";
  return "";
}

// Returns the outcome, such as "  kept in slot 2: among the beams".
std::string Fate(const TraceNode& node) {
  const TraceCandidate& candidate = node.candidate;
  std::string fate = Concat("  ", Name(candidate.fate));
  if (candidate.slot) fate += Concat(" in slot ", *candidate.slot);
  if (candidate.score) fate += " at " + ScoreLabel(*candidate.score);
  if (node.end_of >= 0) fate += Concat(", hypothesis ", node.end_of + 1);
  if (!candidate.why.empty()) fate += ": " + Readable(candidate.why);
  if (node.legal) fate += " → " + LegalLabel(*node.legal);
  return fate;
}

std::string NodeText(const TraceNode& node) {
  const TraceCandidate& candidate = node.candidate;
  return Concat(Mark(node), TokenLabel(candidate), "  ",
                absl::StrFormat("%.2f, sum %.2f", candidate.log_prob,
                                candidate.cum_log_prob),
                Fate(node), "\n");
}

// Does not recurse, because a path may have thousands of tokens.
void AppendTree(const TraceTree& tree, std::string* out) {
  struct Open {
    const std::vector<int>* siblings;
    size_t next = 0;
  };
  std::vector<Open> open = {{&tree.first}};
  std::string indent;  // two columns, "│ " or "  ", a step above
  std::vector<size_t> widths;
  while (!open.empty()) {
    Open& level = open.back();
    if (level.next == level.siblings->size()) {
      open.pop_back();
      if (widths.empty()) break;
      indent.resize(indent.size() - widths.back());
      widths.pop_back();
      continue;
    }
    const TraceNode& node = tree.nodes[(*level.siblings)[level.next++]];
    const bool is_last = level.next == level.siblings->size();
    *out += indent + (is_last ? "└ " : "├ ") + NodeText(node);
    const std::string_view below = is_last ? "  " : "│ ";
    indent += below;
    widths.push_back(below.size());
    open.push_back({&node.children});
  }
}

void AppendHypotheses(const TraceTree& tree, std::string* out) {
  const std::string why_none = WhyNoResult(tree);
  if (!why_none.empty()) *out += why_none + "\n";
  if (!tree.end) return;
  for (size_t i = 0; i < tree.end->hypotheses.size(); ++i) {
    const TraceHypothesis& hypothesis = tree.end->hypotheses[i];
    *out += Concat(i == 0 ? "★ " : "☆ ", i + 1, "  ",
                   absl::StrFormat("%8.4f", hypothesis.score), "  ",
                   PathText(tree, hypothesis.node), "\n");
  }
}

}  // namespace

std::string RenderTraceText(const std::deque<TraceTree>& trees) {
  std::string out;
  for (const TraceTree& tree : trees) {
    if (!out.empty()) out += "\n";
    out += Concat(Title(tree), "\n", Summary(tree), "\n");
    for (const TracePreemption& preemption : tree.preemptions)
      out += PreemptionLabel(preemption) + "\n";
    if (tree.first_legal) {
      out += Concat("at first ", LegalLabel(*tree.first_legal), "\n");
    }
    AppendTree(tree, &out);
    AppendHypotheses(tree, &out);
  }
  return out;
}

}  // namespace espalier
