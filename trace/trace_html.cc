#include "trace/trace_html.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/json.h"
#include "base/status.h"
#include "trace/trace_assets.h"
#include "trace/trace_label.h"
#include "trace/trace_layout.h"
#include "trace/trace_page_map.h"
#include "trace/trace_svg.h"

namespace espalier {
namespace {

// Returns JSON that is safe in a <script> element: characters that could end
// the element, or begin a comment or a URL, are escaped.
std::string ScriptJson(const json::value& value) {
  std::string safe;
  for (const char c : WriteJson(value)) {
    switch (c) {
      case '<':
        safe += "\\u003c";
        break;
      case '>':
        safe += "\\u003e";
        break;
      case '&':
        safe += "\\u0026";
        break;
      case '/':
        safe += "\\/";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

// Returns the number of legal tokens, and the label that says more; null if
// that is not known.
json::value LegalData(const std::optional<TraceLegalRow>& legal) {
  if (!legal) return nullptr;
  return json::array{legal->num_legal, LegalLabel(*legal)};
}

// Returns a compact list, since there may be thousands of nodes. trace_page.js
// names its parts; the last is left out if it is null.
json::array NodeData(const TraceNode& node) {
  const TraceCandidate& candidate = node.candidate;
  json::array data = {
      candidate.step,
      candidate.parent,
      candidate.parent_slot,
      candidate.slot.value_or(-1),
      candidate.token,
      TokenLabel(candidate),
      JsonFloat(candidate.log_prob),
      JsonFloat(candidate.cum_log_prob),
      candidate.score ? JsonFloat(*candidate.score) : json::value(),
      Name(candidate.fate),
      Readable(candidate.why),
      node.path_of,
      node.end_of};
  if (node.legal) data.push_back(LegalData(node.legal));
  return data;
}

json::array PageIds(const std::vector<PageId>& pages) {
  json::array ids;
  for (const PageId page : pages) ids.push_back(page.value);
  return ids;
}

json::object PagesData(const TracePages& pages) {
  json::array slots;
  for (const TraceSlotPages& slot : pages.slots) {
    slots.push_back(json::array{slot.slot, slot.node, PageIds(slot.pages)});
  }
  json::array drafts;
  for (const std::vector<PageId>& draft : pages.drafts) {
    drafts.push_back(PageIds(draft));
  }
  json::array copied;
  for (const TraceCopy& copy : pages.copied) {
    copied.push_back(
        json::array{copy.from.value, copy.to.value, copy.num_tokens});
  }
  return {{"step", pages.step},          {"cached", PageIds(pages.cached)},
          {"copied", std::move(copied)}, {"shared", PageIds(pages.shared)},
          {"slots", std::move(slots)},   {"drafts", std::move(drafts)},
          {"held", pages.num_held},      {"total", pages.num_pages}};
}

json::object TreeData(const TraceTree& tree) {
  json::array nodes, pages, winners;
  for (const TraceNode& node : tree.nodes) nodes.push_back(NodeData(node));
  for (const TracePages& p : tree.pages) pages.push_back(PagesData(p));
  if (tree.end) {
    for (const TraceHypothesis& hypothesis : tree.end->hypotheses) {
      winners.push_back(hypothesis.node);
    }
  }
  json::object data = {{"steps", tree.num_steps()},
                       {"nodes", std::move(nodes)},
                       {"winners", std::move(winners)},
                       {"pages", std::move(pages)}};
  if (tree.first_legal) data["legal"] = LegalData(tree.first_legal);
  return data;
}

std::string Svg(std::string_view classes, std::string_view label, double width,
                double height, std::string_view drawing) {
  return Concat(absl::StrFormat("<svg width=\"%.0f\" height=\"%.0f\" "
                                "viewBox=\"0 0 %.0f %.0f\" ",
                                width, height, width, height),
                "class=\"", classes, "\" role=\"img\" aria-label=\"", label,
                "\">\n", drawing, "</svg>\n");
}

std::string Hypotheses(const TraceTree& tree) {
  const std::string why_none = WhyNoResult(tree);
  if (!why_none.empty()) {
    return Concat("<p class=\"note\">", EscapeMarkup(why_none), "</p>\n");
  }
  std::string out = "<ol class=\"winners\">\n";
  for (size_t i = 0; i < tree.end->hypotheses.size(); ++i) {
    const TraceHypothesis& hypothesis = tree.end->hypotheses[i];
    out +=
        Concat("<li><button type=\"button\" aria-pressed=\"false\" data-w=\"",
               i, "\"><span class=\"score\">", ScoreLabel(hypothesis.score),
               "</span> ", EscapeMarkup(PathText(tree, hypothesis.node)),
               " <small>", EscapeMarkup(Readable(hypothesis.finish_reason)),
               "</small></button></li>\n");
  }
  return out + "</ol>\n";
}

std::string Params(const TraceTree& tree) {
  std::string out = EscapeMarkup(Summary(tree));
  for (const auto& [name, value] : tree.request.params) {
    out += Concat(
        " · ",
        EscapeMarkup(Readable(std::string_view(name.data(), name.size()))), " ",
        EscapeMarkup(Readable(Shown(&value))));
  }
  return out;
}

std::string PreemptionNotes(const TraceTree& tree) {
  std::string out;
  for (const TracePreemption& preemption : tree.preemptions) {
    out += Concat("<p class=\"note\">",
                  EscapeMarkup(PreemptionLabel(preemption)), "</p>\n");
  }
  return out;
}

std::string Section(const TraceTree& tree, size_t index) {
  const TraceLayout layout = Layout(tree);
  const PageMap map = DrawPageMap(tree, layout);
  std::string out = Concat(
      "<section class=\"request\" data-r=\"", index, "\"",
      index > 0 ? " hidden" : "", ">\n<h2>", EscapeMarkup(Title(tree)),
      "</h2>\n<p class=\"note\">", Params(tree), "</p>\n",
      PreemptionNotes(tree), Hypotheses(tree),
      "<div class=\"picture\" tabindex=\"0\" role=\"group\" "
      "aria-label=\"The tree; arrow keys go from candidate to candidate\">\n",
      Svg("tree", "The tree of candidates, steps from left to right",
          layout.width, layout.height, TreeDrawing(tree, layout)));
  if (map.num_pages > 0) {
    out += Concat(
        "<h3>Pages <small>and by how many sequences each is held while a step "
        "runs: ",
        map.max_holders, " at most</small> <span class=\"legend\">",
        "<b class=\"page\">filled</b> <b class=\"cached\">cached</b> "
        "<b class=\"copied\">copied</b></span></h3>\n",
        Svg("map", "Pages held, steps from left to right", layout.width,
            map.height, map.drawing));
  }
  return out + "</div>\n</section>\n";
}

std::string Choices(const std::deque<TraceTree>& trees) {
  std::string out;
  for (size_t i = 0; i < trees.size(); ++i) {
    out += Concat("<option value=\"", i, "\">",
                  EscapeMarkup(Shortened(Title(trees[i]), 60)), "</option>\n");
  }
  return out;
}

std::string Data(const std::deque<TraceTree>& trees) {
  json::array data;
  for (const TraceTree& tree : trees) data.push_back(TreeData(tree));
  return ScriptJson(data);
}

constexpr std::string_view kHead =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
    "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
    "<title>The tree of a search</title>\n<style>\n";

constexpr std::string_view kControls =
    "<div class=\"controls\">\n"
    "<button type=\"button\" id=\"play\" aria-label=\"Play\">▶</button>\n"
    "<label>Step <input type=\"range\" id=\"step\" min=\"0\" "
    "step=\"1\"></label>"
    "\n<output id=\"at\" for=\"step\"></output>\n"
    "<span class=\"zoom\"><button type=\"button\" id=\"smaller\" "
    "aria-label=\"Smaller\">−</button>\n"
    "<button type=\"button\" id=\"fit\">Fit</button>\n"
    "<button type=\"button\" id=\"larger\" aria-label=\"Larger\">+</button>"
    "</span>\n<label><input type=\"checkbox\" id=\"pruned\" checked> pruned "
    "candidates</label>\n<span class=\"legend\"><b class=\"best\">best</b> "
    "<b class=\"lit\">returned</b> <b class=\"finished\">finished</b> "
    "<b class=\"kept\">kept</b> <b class=\"pruned\">pruned</b> · "
    "width: probability</span>\n</div>\n";

constexpr std::string_view kTable =
    "<section class=\"table\"><h3 id=\"table-title\"></h3>\n"
    "<div id=\"table\"></div></section>\n"
    "<div id=\"tip\" role=\"status\" hidden></div>\n";

}  // namespace

std::string RenderTraceHtml(const std::deque<TraceTree>& trees) {
  std::string out = Concat(
      kHead, kTraceTreeCss, kTracePageCss,
      "</style>\n</head>\n<body class=\"espalier\">\n<header>\n",
      "<h1>The tree of a search</h1>\n<label",
      trees.size() > 1 ? "" : " hidden", ">Request <select id=\"request\">\n",
      Choices(trees), "</select></label>\n", kControls, "</header>\n<main>\n");
  for (size_t i = 0; i < trees.size(); ++i) out += Section(trees[i], i);
  return Concat(out, kTable,
                "</main>\n<script type=\"application/json\" id=\"data\">",
                Data(trees), "</script>\n<script>\n", kTracePageJs,
                "</script>\n</body>\n</html>\n");
}

}  // namespace espalier
