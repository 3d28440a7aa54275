// The page of a trace in a browser: headless Chromium loads it, a script uses
// it like a reader, and the resulting document has the outcome. Without
// Chromium the test is skipped with a message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/cli/program.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/trace/fake_trace.h"
#include "trace/trace_html.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

// The command that starts Chromium, or "".
std::string Chromium() {
  for (const std::string name : {"chromium", "chromium-browser",
                                 "google-chrome-stable", "google-chrome"}) {
    if (std::system(("command -v " + name + " > /dev/null").c_str()) == 0) {
      return name;
    }
  }
  return "";
}

#define SKIP_WITHOUT_CHROMIUM()                                            \
  if (Chromium().empty()) {                                                \
    GTEST_SKIP() << "no Chromium: install it to test the page of a trace"; \
  }

TraceTrees TreesOf(const std::vector<FakeSearch>& searches) {
  TraceTrees trees;
  for (const FakeSearch& search : searches) {
    for (const TraceEvent& event : MakeUpTrace(search)) {
      CHECK(trees.Add(event).ok());
    }
  }
  return trees;
}

// `page` with a script that notes errors from the beginning, and the self test
// at the end.
std::string WithSelfTest(std::string page) {
  const std::string head = "<head>\n";
  const std::string body = "</body>";
  page.insert(page.find(head) + head.size(),
              "<script>window.pageErrors = [];\n"
              "window.onerror = (m) => { window.pageErrors.push(m); };\n"
              "console.error = window.onerror;</script>\n");
  page.insert(page.rfind(body),
              "<script>" +
                  ReadText(SourcePath("tests/trace/trace_page_selftest.js")) +
                  "</script>\n");
  return page;
}

// Returns the result of the page's self test: "passed", or the error.
std::string SelfTest(const std::vector<FakeSearch>& searches) {
  const ScratchDirectory scratch;
  const std::string page = scratch.Write(
      "page.html", WithSelfTest(RenderTraceHtml(TreesOf(searches).trees())));
  const ProgramRun run = RunProgram(
      "timeout",
      {"120", Chromium(), "--headless=new", "--no-sandbox", "--disable-gpu",
       "--disable-dev-shm-usage", "--user-data-dir=" + scratch.path("profile"),
       "--dump-dom", "file://" + page},
      "");
  const std::string begin = "<pre id=\"selftest\">";
  const size_t at = run.out.rfind(begin);
  if (at == std::string::npos) {
    return "no result, exit code " + std::to_string(run.exit_code) + ": " +
           run.err + run.out.substr(0, 2000);
  }
  const size_t first = at + begin.size();
  return run.out.substr(first, run.out.find("</pre>", first) - first);
}

TEST(TracePageTest, AReaderCanUseIt) {
  SKIP_WITHOUT_CHROMIUM();
  EXPECT_EQ(SelfTest({{.request = 0, .num_beams = 4, .num_steps = 9},
                      {.request = 1, .num_beams = 1, .num_steps = 3},
                      {.request = 2, .num_beams = 3, .is_constrained = true},
                      {.request = 5, .num_beams = 3, .ends = false}}),
            "passed");
}

TEST(TracePageTest, HostileTokensStayText) {
  SKIP_WITHOUT_CHROMIUM();
  EXPECT_EQ(SelfTest({{.texts = {"</script><script>throw 1</script>", "\"'`",
                                 "<!--<script>", "\\", "https://a.example/",
                                 "\u2028\n\t", "", "]]>", "${1}"}}}),
            "passed");
}

TEST(TracePageTest, FiveThousandCandidatesAreUsable) {
  SKIP_WITHOUT_CHROMIUM();
  EXPECT_EQ(SelfTest({{.num_beams = 500, .num_steps = 5}}), "passed");
}

}  // namespace
}  // namespace espalier::testing
