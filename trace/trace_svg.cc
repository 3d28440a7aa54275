#include "trace/trace_svg.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "trace/trace_assets.h"
#include "trace/trace_label.h"

namespace espalier {
namespace {

constexpr double kPadding = 24;
constexpr double kTitleHeight = 34;
constexpr double kLineHeight = 20;  // one line per hypothesis

// Pixels, to a tenth.
std::string Px(double value) { return absl::StrFormat("%.1f", value); }

// Returns CSS classes, such as "kept lit best".
std::string Classes(const TraceNode& node) {
  std::string classes(Name(node.candidate.fate));
  if (node.lit()) classes += node.path_of == 0 ? " lit best" : " lit";
  return classes;
}

// Returns the layer of a node; higher layers are drawn later, on top.
int Layer(const TraceNode& node) {
  if (node.lit()) return node.path_of == 0 ? 3 : 2;
  return node.candidate.fate == CandidateFate::kPruned ? 0 : 1;
}

// Returns the line to a node: from the bend after its parent, and beyond the
// node to the bend before its children.
std::string Line(const TraceTree& tree, const TraceLayout& layout, int id) {
  const TraceNode& node = tree.nodes[id];
  const int step = node.candidate.step;
  const int parent = node.candidate.parent;
  const double from =
      parent == kTraceRoot ? layout.root.y : layout.nodes[parent].y;
  const auto to = layout.nodes[id];
  const double bend = layout.bends[step];
  const std::string middle = Px((bend + to.x) / 2);
  const std::string on =
      node.children.empty() ? "" : "H" + Px(layout.bends[step + 1]);
  return Concat("<path class=\"e ", Classes(node), "\" data-n=\"", id,
                "\" stroke-width=\"", Px(1 + 4 * Probability(node.candidate)),
                "\" d=\"M", Px(bend), " ", Px(from), "C", middle, " ", Px(from),
                " ", middle, " ", Px(to.y), " ", Px(to.x), " ", Px(to.y), on,
                "\"/>\n");
}

std::string Dot(const TraceNode& node) {
  switch (node.candidate.fate) {
    case CandidateFate::kKept:
      return "<circle r=\"4\"/>";
    case CandidateFate::kFinished:
      return "<rect x=\"-4.5\" y=\"-4.5\" width=\"9\" height=\"9\" "
             "rx=\"1.5\"/>";
    case CandidateFate::kPruned:
      return "<circle r=\"2.5\"/>";
  }
  return "";
}

// Below the line that continues from a node.
std::string LegalText(const std::optional<TraceLegalRow>& legal) {
  if (!legal) return "";
  return Concat("<text class=\"legal\" x=\"6\" y=\"11\">", LegalNote(legal),
                "</text>");
}

std::string Node(const TraceNode& node, const TraceLayout::Point& at) {
  // The label is above the line if that continues, otherwise beside the dot.
  const bool goes_on = node.kept();
  return Concat("<g class=\"n ", Classes(node), "\" data-n=\"",
                node.candidate.node, "\" transform=\"translate(", Px(at.x), " ",
                Px(at.y), ")\">", Dot(node), "<text x=\"", goes_on ? 6 : 9,
                "\" y=\"", goes_on ? -7 : 4, "\">",
                EscapeMarkup(NodeLabel(node)), "</text>", LegalText(node.legal),
                "</g>\n");
}

// The dot at the end of the prompt, with the decoder prompt as its label.
std::string Root(const TraceTree& tree, const TraceLayout::Point& at) {
  std::string out = Concat("<g class=\"n root\" transform=\"translate(",
                           Px(at.x), " ", Px(at.y), ")\"><circle r=\"5\"/>");
  const std::string label = RootLabel(tree);
  if (!label.empty()) {
    out += Concat(
        "<title>decoder prompt: ", EscapeMarkup(DecoderPromptLabel(tree)),
        "</title><text x=\"6\" y=\"-7\">", EscapeMarkup(label), "</text>");
  }
  return out + LegalText(tree.first_legal) + "</g>\n";
}

std::string Guides(const TraceTree& tree, const TraceLayout& layout) {
  std::string out = PreemptionMarks(tree, layout, layout.height);
  for (int step = 1; step <= tree.num_steps(); ++step) {
    const std::string x = Px(layout.columns[step]);
    out += Concat("<path class=\"guide\" data-s=\"", step, "\" d=\"M", x,
                  " 18V", Px(layout.height),
                  "\"/><text class=\"step\" "
                  "text-anchor=\"middle\" x=\"",
                  x, "\" y=\"12\">", step, "</text>\n");
  }
  for (size_t slot = 0; slot < layout.lanes.size(); ++slot) {
    out += Concat("<text class=\"lane\" x=\"0\" y=\"",
                  Px(layout.lanes[slot] + 4), "\">slot ", slot, "</text>\n");
  }
  return out;
}

// Returns title and hypotheses, from `*y` on; advances `*y` to their end.
std::string Heading(const TraceTree& tree, double* y) {
  std::string out =
      Concat("<text class=\"title\" y=\"", Px(*y + 16), "\">",
             EscapeMarkup(Shortened(Title(tree), 100)), "</text>\n");
  *y += kTitleHeight;
  const std::string why_none = WhyNoResult(tree);
  if (!why_none.empty()) {
    out += Concat("<text class=\"hypothesis\" y=\"", Px(*y + 8), "\">",
                  EscapeMarkup(Shortened(why_none, 100)), "</text>\n");
    *y += kLineHeight;
  }
  if (!tree.end) return out;
  for (size_t rank = 0; rank < tree.end->hypotheses.size(); ++rank) {
    const TraceHypothesis& hypothesis = tree.end->hypotheses[rank];
    out += Concat("<text class=\"hypothesis", rank == 0 ? " best" : "",
                  "\" y=\"", Px(*y + 8), "\">#", rank + 1, "  ",
                  ScoreLabel(hypothesis.score), "  ",
                  EscapeMarkup(Shortened(PathText(tree, hypothesis.node), 100)),
                  "</text>\n");
    *y += kLineHeight;
  }
  return out;
}

}  // namespace

std::string PreemptionMarks(const TraceTree& tree, const TraceLayout& layout,
                            double height) {
  std::string out;
  for (const TracePreemption& preemption : tree.preemptions) {
    const int step = preemption.preempted.step;
    const double x =
        step <= tree.num_steps() ? layout.bends[step] : layout.width - 4;
    out += Concat("<g class=\"preemption\" data-s=\"", step, "\"><title>",
                  EscapeMarkup(PreemptionLabel(preemption)),
                  "</title><path d=\"M", Px(x), " 18V", Px(height),
                  "\"/><text text-anchor=\"middle\" x=\"", Px(x),
                  "\" y=\"12\">preempted</text></g>\n");
  }
  return out;
}

std::string TreeDrawing(const TraceTree& tree, const TraceLayout& layout) {
  std::string out = Guides(tree, layout);
  for (int layer = 0; layer <= 3; ++layer) {
    for (const TraceNode& node : tree.nodes) {
      if (Layer(node) != layer) continue;
      out += Line(tree, layout, node.candidate.node);
    }
  }
  if (!tree.first.empty()) {
    out += Concat("<path class=\"stem\" d=\"M", Px(layout.root.x), " ",
                  Px(layout.root.y), "H", Px(layout.bends[1]), "\"/>\n");
  }
  out += Root(tree, layout.root);
  for (const TraceNode& node : tree.nodes) {
    out += Node(node, layout.nodes[node.candidate.node]);
  }
  return out;
}

std::string RenderTraceSvg(const std::deque<TraceTree>& trees) {
  std::string body;
  double y = 0;
  double width = 640;
  for (const TraceTree& tree : trees) {
    const TraceLayout layout = Layout(tree);
    body += Heading(tree, &y);
    body += Concat("<g transform=\"translate(0 ", Px(y), ")\">\n",
                   TreeDrawing(tree, layout), "</g>\n");
    y += layout.height + kTitleHeight;
    width = std::max(width, layout.width);
  }
  const std::string whole_width = Px(width + 2 * kPadding);
  const std::string whole_height = Px(y + kPadding);
  return Concat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"espalier\" width=\"",
      whole_width, "\" height=\"", whole_height, "\" viewBox=\"0 0 ",
      whole_width, " ", whole_height, "\" role=\"img\">\n",
      "<title>The tree of a search</title>\n<style>\n", kTraceTreeCss,
      "</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n",
      "<g transform=\"translate(", Px(kPadding), " ", Px(kPadding), ")\">\n",
      body, "</g>\n</svg>\n");
}

}  // namespace espalier
