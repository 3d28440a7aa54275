#include "trace/trace_dot.h"

#include <string_view>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "trace/trace_label.h"

namespace espalier {
namespace {

// Returns `text` as a quoted string. Line breaks of a trace's texts are visible
// signs already; others stay.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string NodeName(size_t tree, int node) {
  return node == kTraceRoot ? Concat("t", tree, "_root")
                            : Concat("t", tree, "_", node);
}

std::string_view Color(const TraceNode& node) {
  if (node.path_of == 0) return "#12805c";
  if (node.lit()) return "#2f6fb3";
  switch (node.candidate.fate) {
    case CandidateFate::kKept:
      return "#7b857f";
    case CandidateFate::kFinished:
      return "#b7791f";
    case CandidateFate::kPruned:
      return "#c9c4bb";
  }
  return "";
}

void AppendNode(size_t index, const TraceNode& node, std::string* out) {
  const TraceCandidate& candidate = node.candidate;
  std::string label = TokenLabel(candidate);
  if (candidate.score) label += " " + ScoreLabel(*candidate.score);
  if (node.legal) label += "\n" + NumLegalLabel(*node.legal);
  const std::string tooltip =
      node.legal ? ", tooltip=" + Quoted(LegalLabel(*node.legal)) : "";
  const std::string_view color = Color(node);
  absl::StrAppendFormat(
      out, "    %s [label=%s, color=\"%s\", fontcolor=\"%s\"%s%s];\n",
      NodeName(index, candidate.node), Quoted(label), std::string(color),
      std::string(color),
      candidate.fate == CandidateFate::kFinished ? ", peripheries=2" : "",
      tooltip);
  absl::StrAppendFormat(
      out, "    %s -> %s [color=\"%s\", penwidth=%.2f, label=\"%.2f\"%s];\n",
      NodeName(index, candidate.parent), NodeName(index, candidate.node),
      std::string(color), 0.5 + 4 * Probability(candidate), candidate.log_prob,
      candidate.fate == CandidateFate::kPruned ? ", style=dashed" : "");
}

void AppendCluster(size_t index, const TraceTree& tree, std::string* out) {
  std::string begun = DecoderPromptLabel(tree);
  if (begun.empty()) begun = "prompt";
  if (tree.first_legal) begun += "\n" + NumLegalLabel(*tree.first_legal);
  *out += Concat(
      "  subgraph cluster_", index, " {\n    label=", Quoted(Title(tree)),
      ";\n    ", NodeName(index, kTraceRoot), " [label=", Quoted(begun),
      tree.first_legal ? ", tooltip=" + Quoted(LegalLabel(*tree.first_legal))
                       : "",
      ", shape=plaintext];\n");
  for (const TraceNode& node : tree.nodes) AppendNode(index, node, out);
  for (size_t i = 0; i < tree.preemptions.size(); ++i) {
    *out += Concat("    t", index, "_preempted", i,
                   " [label=", Quoted(PreemptionLabel(tree.preemptions[i])),
                   ", shape=plaintext];\n");
  }
  const std::string why_none = WhyNoResult(tree);
  if (!why_none.empty()) {
    *out += Concat("    t", index, "_end [label=", Quoted(why_none),
                   ", shape=plaintext];\n");
  }
  *out += "  }\n";
}

}  // namespace

std::string RenderTraceDot(const std::deque<TraceTree>& trees) {
  std::string out =
      "digraph espalier {\n"
      "  rankdir=LR;\n"
      "  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n"
      "  edge [fontname=\"sans-serif\", fontsize=9, arrowhead=none];\n";
  for (size_t i = 0; i < trees.size(); ++i) AppendCluster(i, trees[i], &out);
  return out + "}\n";
}

}  // namespace espalier
