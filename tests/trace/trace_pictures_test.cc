// Properties of pictures of traces: they show every candidate once, highlight
// winners, and escape all texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/status_matchers.h"
#include "tests/trace/fake_trace.h"
#include "trace/trace_dot.h"
#include "trace/trace_html.h"
#include "trace/trace_json.h"
#include "trace/trace_label.h"
#include "trace/trace_layout.h"
#include "trace/trace_page_map.h"
#include "trace/trace_svg.h"
#include "trace/trace_text.h"

namespace espalier {
namespace {

using ::espalier::testing::FakeSearch;
using ::espalier::testing::MakeUpTrace;
using ::testing::HasSubstr;
using ::testing::Not;

TraceTrees Trees(const std::vector<FakeSearch>& searches) {
  TraceTrees trees;
  for (const FakeSearch& search : searches) {
    for (const TraceEvent& event : MakeUpTrace(search)) {
      EXPECT_OK(trees.Add(event));
    }
  }
  return trees;
}

const std::vector<FakeSearch>& Searches() {
  static const std::vector<FakeSearch> searches = {
      {.request = 3, .num_beams = 4, .num_steps = 8},
      {.request = 1, .num_beams = 1, .num_steps = 1},
      {.request = 9, .num_beams = 17, .num_steps = 5, .seed = 4},
      {.request = 8, .num_beams = 2, .num_steps = 40, .ends = false}};
  return searches;
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

TEST(TracePicturesTest, EveryCandidateStandsOnceInTheTree) {
  for (const FakeSearch& search : Searches()) {
    const std::vector<TraceEvent> events = MakeUpTrace(search);
    const TraceTrees trees = Trees({search});
    const std::string svg = RenderTraceSvg(trees.trees());
    const std::string dot = RenderTraceDot(trees.trees());
    const std::string html = RenderTraceHtml(trees.trees());
    int num_candidates = 0;
    for (const TraceEvent& event : events) {
      const auto* candidate = std::get_if<TraceCandidate>(&event);
      if (candidate == nullptr) continue;
      ++num_candidates;
      const std::string id = Concat(candidate->node);
      // Its dot and the line to it.
      EXPECT_EQ(Count(svg, "data-n=\"" + id + "\""), 2) << id;
      EXPECT_EQ(Count(html, "data-n=\"" + id + "\""), 2) << id;
      EXPECT_EQ(Count(dot, "    t0_" + id + " ["), 1) << id;
      const std::string parent =
          candidate->parent < 0 ? "root" : Concat(candidate->parent);
      EXPECT_EQ(Count(dot, "t0_" + parent + " -> t0_" + id + " ["), 1) << id;
    }
    const std::string text = RenderTraceText(trees.trees());
    EXPECT_EQ(Count(text, "├ ") + Count(text, "└ "), num_candidates) << text;
  }
}

TEST(TracePicturesTest, WinnersPathsAreLitAndNothingElse) {
  const TraceTrees trees = Trees(Searches());
  ASSERT_EQ(trees.trees().size(), Searches().size());
  for (const TraceTree& tree : trees.trees()) {
    std::vector<int> path_of(tree.nodes.size(), -1);
    if (tree.end) {
      for (int rank = tree.end->hypotheses.size() - 1; rank >= 0; --rank) {
        int node = tree.end->hypotheses[rank].node;
        EXPECT_EQ(tree.nodes[node].end_of, rank);
        for (; node >= 0; node = tree.nodes[node].candidate.parent) {
          path_of[node] = rank;
        }
      }
    }
    for (size_t i = 0; i < tree.nodes.size(); ++i) {
      EXPECT_EQ(tree.nodes[i].path_of, path_of[i]);
    }
    const int num_lit = std::count_if(path_of.begin(), path_of.end(),
                                      [](int rank) { return rank >= 0; });
    const int num_best = std::count(path_of.begin(), path_of.end(), 0);
    EXPECT_EQ(num_best > 0, tree.end.has_value());
    const std::string drawing = TreeDrawing(tree, Layout(tree));
    EXPECT_EQ(Count(drawing, " lit"), 2 * num_lit);
    EXPECT_EQ(Count(drawing, " lit best"), 2 * num_best);
  }
}

TEST(TracePicturesTest, PathsReadAsText) {
  TraceTrees trees;
  EXPECT_OK(trees.Add(TraceRequest{.prompt = " Hello\nyou"}));
  const std::vector<std::string> texts = {"▁It", "▁is", "n't", "</s>"};
  for (int i = 0; i < 4; ++i) {
    TraceCandidate event{
        .step = i + 1, .node = i, .parent = i - 1, .text = texts[i]};
    if (i < 3) event.slot = 0;
    if (i == 3) {
      event.fate = CandidateFate::kFinished;
      event.why = "eos";
      event.score = -1;
    }
    EXPECT_OK(trees.Add(event));
  }
  const TraceTree& tree = trees.trees().front();
  EXPECT_EQ(PathText(tree, 3), "It isn't");
  EXPECT_EQ(Title(tree), "Request 0: Hello↵you");
  EXPECT_EQ(TokenLabel(tree.nodes[0].candidate), "·It");
  EXPECT_EQ(TokenLabel({.token = 279}), "#279");
}

// Returns the trees of the first search, with these params.
TraceTrees TreesOf(const json::object& params) {
  std::vector<TraceEvent> events = MakeUpTrace(Searches()[0]);
  TraceRequest& request = std::get<TraceRequest>(events[0]);
  request.prompt = "It rains.";
  request.params = params;
  TraceTrees trees;
  for (const TraceEvent& event : events) EXPECT_OK(trees.Add(event));
  return trees;
}

TEST(TracePicturesTest, WhatTheDecoderWentOnFromStandsAtTheRoot) {
  const TraceTrees plain = TreesOf({});
  EXPECT_EQ(Title(plain.trees().front()), "Request 3: It rains.");
  EXPECT_EQ(RootLabel(plain.trees().front()), "");
  const TraceTrees begun = TreesOf(
      {{"decoder_prompt_tokens", {31, 7}}, {"decoder_prompt", "Il <b>"}});
  const TraceTree& tree = begun.trees().front();
  EXPECT_EQ(Title(tree), "Request 3: It rains. → Il <b>");
  const std::string svg = TreeDrawing(tree, Layout(tree));
  EXPECT_EQ(Count(svg, ">Il·&lt;b&gt;</text></g>"), 1);
  EXPECT_EQ(Count(svg, "<title>decoder prompt: Il·&lt;b&gt;</title>"), 1);
  EXPECT_THAT(RenderTraceDot(begun.trees()),
              HasSubstr("t0_root [label=\"Il·<b>\""));
  EXPECT_THAT(RenderTraceText(begun.trees()), HasSubstr(" → Il <b>\n"));
  // Its label lies before the first step's column.
  EXPECT_GE(Layout(tree).bends[1] - Layout(tree).root.x,
            6 + 7.2 * NumColumns(RootLabel(tree)));
  EXPECT_GT(Layout(tree).width, Layout(plain.trees().front()).width);
}

TEST(TracePicturesTest, ADecoderPromptWithoutATextIsItsIds) {
  const TraceTrees trees = TreesOf({{"decoder_prompt_tokens", {31, 7}}});
  EXPECT_EQ(RootLabel(trees.trees().front()), "#31 #7");
  EXPECT_EQ(Title(trees.trees().front()), "Request 3: It rains. → #31 #7");
  json::array many;
  for (int i = 0; i < 1000; ++i) many.push_back(i);
  const TraceTrees wide = TreesOf({{"decoder_prompt_tokens", many}});
  EXPECT_EQ(NumColumns(RootLabel(wide.trees().front())), kMaxRootLabelColumns);
  // A file may have anything there.
  for (const json::value& odd : {json::value(7), json::value("x"),
                                 json::value(nullptr), json::value(false)}) {
    const TraceTrees read = TreesOf(
        {{"decoder_prompt_tokens", odd}, {"decoder_prompt", json::array{}}});
    EXPECT_EQ(RootLabel(read.trees().front()), "");
  }
}

TEST(TracePicturesTest, LabelsNeverLieOverEachOther) {
  for (const FakeSearch& search : Searches()) {
    const TraceTrees trees = Trees({search});
    const TraceTree& tree = trees.trees().front();
    const TraceLayout layout = Layout(tree);
    for (int step = 1; step <= tree.num_steps(); ++step) {
      std::vector<std::pair<double, double>> labels;  // top and bottom
      for (const int id : tree.steps[step - 1]) {
        const TraceNode& node = tree.nodes[id];
        const auto [x, y] = layout.nodes[id];
        EXPECT_EQ(x, layout.columns[step]);
        const double end = x + 7 * NumColumns(NodeLabel(node));
        EXPECT_LT(end, step < tree.num_steps() ? layout.bends[step + 1]
                                               : layout.width);
        if (node.kept()) {
          EXPECT_EQ(y, layout.lanes[*node.candidate.slot]);
          labels.push_back({y - 18, y + 4});  // above its dot
        } else {
          labels.push_back({y - 7, y + 7});  // beside it
        }
      }
      std::sort(labels.begin(), labels.end());
      for (size_t i = 1; i < labels.size(); ++i) {
        EXPECT_GE(labels[i].first, labels[i - 1].second) << "step " << step;
      }
      EXPECT_LE(labels.back().second, layout.height);
    }
  }
}

TEST(TracePicturesTest, ThePageMapHasACellForEachPageHeld) {
  const TraceTrees trees = Trees({{.num_beams = 4, .num_steps = 9}});
  const TraceTree& tree = trees.trees().front();
  const PageMap map = DrawPageMap(tree, Layout(tree));
  int num_cells = 0;
  for (const TracePages& pages : tree.pages) {
    std::set<PageId> held(pages.shared.begin(), pages.shared.end());
    for (const TraceSlotPages& slot : pages.slots) {
      held.insert(slot.pages.begin(), slot.pages.end());
    }
    for (const PageId page : held) {
      ++num_cells;
      EXPECT_EQ(Count(map.drawing, Concat("data-s=\"", pages.step,
                                          "\" data-p=\"", page, "\"")),
                1);
    }
  }
  EXPECT_EQ(Count(map.drawing, "data-p="), num_cells);
  EXPECT_EQ(map.max_holders, 4);
}

TEST(TracePicturesTest, RowsOfDraftsHoldPagesToo) {
  TraceTrees trees;
  for (const TraceEvent& event :
       std::vector<TraceEvent>{TraceRequest{.request = {0}},
                               TracePages{.shared = {{1}},
                               .slots = {{.slot = 0, .pages = {{2}}}},
                               .drafts = {{{2}}, {{3}}}},
                               TraceCandidate{.slot = 0}}) {
    ASSERT_OK(trees.Add(event));
  }
  const TraceTree& tree = trees.trees().front();
  const PageMap map = DrawPageMap(tree, Layout(tree));
  EXPECT_EQ(map.num_pages, 3);
  EXPECT_EQ(map.max_holders, 3);
  EXPECT_EQ(Count(map.drawing, "data-p=\"3\""), 1);
  EXPECT_EQ(tree.num_slots, 1);
}

// Texts that would be markup, script, a string's end or an address.
std::vector<std::string> Hostile() {
  return {"</script><script>alert(1)</script>",
          "<!--<script>",
          "<img src=x onerror=alert(1)>",
          "\"'`]]>",
          "\\\"\\N",
          "https://evil.example/",
          "&lt;&#47;",
          "a\nb\r\tc\u2028d\u202Ee",
          std::string("\0\x1B\x7F", 3)};
}

TEST(TracePicturesTest, BidirectionalControlsAreReplaced) {
  for (const std::string_view control :
       {"\u061C", "\u200E", "\u200F", "\u202A", "\u202E", "\u2066", "\u2069"}) {
    const std::string text = "a" + std::string(control) + "b";
    EXPECT_EQ(Visible(text), "a\uFFFDb");
    EXPECT_EQ(Readable(text), "a\uFFFDb");
  }
}

TEST(TracePicturesTest, NoTextIsEverMarkup) {
  std::vector<TraceEvent> events = MakeUpTrace({.texts = Hostile()});
  for (TraceEvent& event : events) {
    if (auto* request = std::get_if<TraceRequest>(&event)) {
      request->prompt = request->strategy = Hostile()[0];
      request->params = {{Hostile()[0], Hostile()[2]}};
    } else if (auto* candidate = std::get_if<TraceCandidate>(&event)) {
      candidate->why += Hostile()[0];
    } else if (auto* end = std::get_if<TraceEnd>(&event)) {
      end->hypotheses[0].finish_reason = Hostile()[0];
    }
  }
  TraceTrees trees;
  for (const TraceEvent& event : events) EXPECT_OK(trees.Add(event));
  const std::string html = RenderTraceHtml(trees.trees());
  const std::string svg = RenderTraceSvg(trees.trees());
  const TraceTrees plain = Trees({{}});
  const std::string plain_html = RenderTraceHtml(plain.trees());
  const std::string plain_svg = RenderTraceSvg(plain.trees());
  // Compares with the elements of a trace without markup in its texts.
  for (const std::string part :
       {"<script", "</script", "<!--", "<img", "</", "<t"}) {
    EXPECT_EQ(Count(html, part), Count(plain_html, part)) << part;
    EXPECT_EQ(Count(svg, part), Count(plain_svg, part)) << part;
  }
  for (const char control : {'\0', '\x1B', '\x7F', '\r'}) {
    EXPECT_EQ(html.find(control), std::string::npos);
    EXPECT_EQ(svg.find(control), std::string::npos);
  }
  const std::string dot = RenderTraceDot(trees.trees());
  for (size_t at = 0; at < dot.size();) {  // quotes are in pairs, on one line
    const size_t line_end = dot.find('\n', at);
    bool quoted = false;
    for (; at < line_end; ++at) {
      if (quoted && dot[at] == '\\') {
        ++at;
      } else if (dot[at] == '"') {
        quoted = !quoted;
      }
    }
    EXPECT_FALSE(quoted) << dot.substr(0, line_end);
    ++at;
  }
}

TEST(TracePicturesTest, ThePageRefersToNothingOutside) {
  for (const auto& texts : {std::vector<std::string>{" vine"}, Hostile()}) {
    const TraceTrees trees = Trees({{.texts = texts}});
    const std::string html = RenderTraceHtml(trees.trees());
    EXPECT_EQ(Count(html, "//"), 0);
    for (const std::string part :
         {"http:", " src=\"", "href=", "url(", "@import", "fetch("}) {
      EXPECT_EQ(Count(html, part), 0) << part;
    }
  }
}

TEST(TracePicturesTest, ARequestWithoutStepsOrWithAnErrorIsDrawnToo) {
  TraceTrees trees;
  EXPECT_OK(trees.Add(TraceRequest{.request = {1}}));
  EXPECT_OK(trees.Add(TraceRequest{.request = {2}}));
  EXPECT_OK(trees.Add(TraceEnd{
      .request = {2}, .error = absl::CancelledError("the caller <left>")}));
  EXPECT_THAT(RenderTraceHtml(trees.trees()),
              HasSubstr("CANCELLED: the caller &lt;left&gt;"));
  EXPECT_THAT(RenderTraceText(trees.trees()),
              HasSubstr("CANCELLED: the caller <left>"));
  EXPECT_THAT(RenderTraceSvg(trees.trees()), HasSubstr("Request 2"));
  EXPECT_THAT(RenderTraceDot(trees.trees()), HasSubstr("cluster_1"));
}

TEST(TracePicturesTest, EveryPictureTellsOfAPreemption) {
  const TraceTrees preempted = Trees({{.preempted_before = 3}});
  const TraceTrees stayed = Trees({{}});
  const std::string told =
      "preempted before step 3, gave 3 pages back; resumed with 12 tokens "
      "cached, 4 fed again";
  for (const auto render :
       {RenderTraceText, RenderTraceSvg, RenderTraceHtml, RenderTraceDot}) {
    EXPECT_THAT(render(preempted.trees()), HasSubstr(told));
    EXPECT_THAT(render(stayed.trees()), Not(HasSubstr("preempted")));
  }
  // A line in the tree and one in the page map.
  EXPECT_EQ(Count(RenderTraceHtml(preempted.trees()), "class=\"preemption\""),
            2);
}

TEST(TracePicturesTest, EveryPictureTellsWhatWasLegal) {
  const TraceTrees legal = Trees({{.is_constrained = true}});
  const TraceTrees free = Trees({{}});
  const TraceTree& tree = legal.trees().front();
  int num_rows = 0;
  for (const TraceNode& node : tree.nodes) num_rows += node.legal ? 1 : 0;
  EXPECT_GT(num_rows, 10);
  for (const auto render :
       {RenderTraceText, RenderTraceSvg, RenderTraceHtml, RenderTraceDot}) {
    EXPECT_THAT(render(free.trees()), Not(HasSubstr("999 legal")));
    const std::string drawing = render(legal.trees());
    EXPECT_THAT(drawing, HasSubstr("999 legal"));  // at the root
    for (const TraceNode& node : tree.nodes) {
      const std::string number = Concat(1000 + node.candidate.node, " legal");
      if (node.legal) {
        EXPECT_THAT(drawing, HasSubstr(number));
      } else {
        EXPECT_THAT(drawing, Not(HasSubstr(number)));
      }
    }
  }
  EXPECT_THAT(RenderTraceText(legal.trees()),
              HasSubstr("at first 999 legal tokens, state 39, room 6, mass "
                        "0.607\n"));
  EXPECT_THAT(RenderTraceDot(legal.trees()),
              HasSubstr("t0_root [label=\"prompt\n999 legal\", "
                        "tooltip=\"999 legal tokens, state 39, room 6, mass "
                        "0.607\""));
  EXPECT_EQ(LegalLabel({.state = 3, .room = 9, .num_legal = 1}),
            "1 legal token, state 3, room 9");
  EXPECT_EQ(Count(TreeDrawing(tree, Layout(tree)), "class=\"legal\""),
            num_rows + 1);
  // Space for the numbers, which may be wider than the tokens.
  EXPECT_GE(Layout(tree).width, Layout(free.trees().front()).width);
  EXPECT_GT(Layout(tree).height, Layout(free.trees().front()).height);
}

TEST(TracePicturesTest, ThePageMapTellsHowPagesCame) {
  const TraceTrees trees = Trees({{.num_beams = 4, .num_steps = 6}});
  const TraceTree& tree = trees.trees().front();
  const std::string map = DrawPageMap(tree, Layout(tree)).drawing;
  EXPECT_EQ(Count(map, "cached\" data-s="), 6);  // page 0, at each step
  // Step 5 is the first after a full page.
  int num_copies = 0;
  for (const TracePages& pages : tree.pages) {
    num_copies += static_cast<int>(pages.copied.size());
  }
  EXPECT_GT(num_copies, 0);
  EXPECT_EQ(Count(map, "copied\" data-s=\"5\""), num_copies);
  EXPECT_EQ(Count(map, " copied\""), num_copies);
}

TEST(TracePicturesTest, APreemptionTellsWhatCameBackFromTheHost) {
  TraceTrees trees;
  for (TraceEvent event : MakeUpTrace({.preempted_before = 3})) {
    if (auto* resumed = std::get_if<TraceResumed>(&event)) {
      resumed->num_loaded_tokens = 8;
    }
    EXPECT_OK(trees.Add(event));
  }
  EXPECT_THAT(
      RenderTraceText(trees.trees()),
      HasSubstr("resumed with 12 tokens cached, 8 loaded, 4 fed again"));
}

}  // namespace
}  // namespace espalier
