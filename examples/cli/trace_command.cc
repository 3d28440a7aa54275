#include "examples/cli/trace_command.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "examples/cli/line_reader.h"
#include "examples/cli/output.h"
#include "examples/cli/trace_dot.h"
#include "examples/cli/trace_html.h"
#include "examples/cli/trace_svg.h"
#include "examples/cli/trace_text.h"
#include "examples/cli/trace_tree.h"
#include "exec_request/trace_json.h"

namespace espalier::cli {
namespace {

using Render = std::string (*)(const std::deque<TraceTree>&);

const std::map<std::string, Render>& Renderers() {
  static const auto* const renderers =
      new std::map<std::string, Render>{{"dot", RenderTraceDot},
                                        {"html", RenderTraceHtml},
                                        {"svg", RenderTraceSvg},
                                        {"text", RenderTraceText}};
  return *renderers;
}

// Adds the event to `*trees` if it is wanted; if it begins a request, that
// one's number to `*numbers`.
absl::Status AddLine(const TraceOptions& options, std::string_view line,
                     TraceTrees* trees, std::vector<int64_t>* numbers) {
  if (line.size() > kMaxLineBytes) {
    return InvalidArgument("an event may have ", kMaxLineBytes,
                           " bytes, this one has more");
  }
  ASSIGN_OR_RETURN(TraceEvent event, ParseTraceLine(line));
  if (std::holds_alternative<TraceRequest>(event)) {
    numbers->push_back(RequestOf(event).value);
  }
  if (options.request && RequestOf(event).value != *options.request) {
    return absl::OkStatus();
  }
  return trees->Add(std::move(event));
}

// "0", "0 to 41", or "0, 2, 5 and 7 more"
std::string DescribeNumbers(const std::vector<int64_t>& numbers) {
  constexpr size_t kMaxListed = 8;
  const auto [first, last] = std::ranges::minmax(numbers);
  if (numbers.size() == 1) return Concat(first);
  // Unsigned, because a file may have numbers that are any distance apart.
  const uint64_t span = static_cast<uint64_t>(last) - first;
  if (span + 1 == numbers.size()) return Concat(first, " to ", last);
  const size_t num_listed = std::min(numbers.size(), kMaxListed);
  std::vector<std::string> words;
  for (size_t i = 0; i < num_listed; ++i) words.push_back(Concat(numbers[i]));
  if (num_listed < numbers.size()) {
    words.push_back(Concat(numbers.size() - num_listed, " more"));
  }
  return Listed(words);
}

absl::Status NoRequest(const TraceOptions& options, const std::string& file,
                       const std::vector<int64_t>& numbers) {
  if (numbers.empty()) return InvalidArgument("no request in ", file);
  return InvalidArgument("no request ", *options.request, " in ", file,
                         ", which has ", Counted(numbers.size(), "request"),
                         ": ", DescribeNumbers(numbers));
}

// Errors: as above, after "FILE:LINE: ", lines counted from 1.
absl::StatusOr<TraceTrees> ReadTrace(const TraceOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                   LineReader::Open(options.file));
  TraceTrees trees;
  std::vector<int64_t> numbers;
  int64_t line_number = 0;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader->Read());
    if (lines.empty()) break;
    for (const std::string& line : lines) {
      ++line_number;
      const absl::Status status = AddLine(options, line, &trees, &numbers);
      if (status.ok()) continue;
      const std::string where = Concat(reader->name(), ":", line_number);
      const bool is_cut = reader->ended_within_line() && line_number > 1 &&
                          !ParseJson(line).ok();
      if (!is_cut) return Annotate(status, where);
      // Whoever wrote it was ended meanwhile, or still writes.
      PrintToStderr(Concat("espalier: ", where, ": the last line has no end, ",
                           "and is left out\n"));
    }
  }
  if (trees.trees().empty()) return NoRequest(options, reader->name(), numbers);
  return trees;
}

}  // namespace

absl::Status DrawTrace(const TraceOptions& options) {
  const auto render = Renderers().find(options.format);
  if (render == Renderers().end()) {
    return InvalidArgument("--to must be text, svg, html or dot, got ",
                           ShownInQuotes(options.format));
  }
  if (IsSameFile(options.file, options.output)) {
    return InvalidArgument("the trace and --output are the same file, ",
                           options.output);
  }
  ASSIGN_OR_RETURN(const TraceTrees trees, ReadTrace(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output,
                   Output::Open(options.output));
  output->Write(render->second(trees.trees()));
  return output->Close();
}

const char kTraceExamples[] =
    R"(Examples:
  espalier generate -m models/en-fr --num-beams 4 --trace search.jsonl \
    "It rains."
  espalier trace search.jsonl
  espalier trace search.jsonl --to html -o search.html
  espalier trace search.jsonl --to dot | dot -Tpdf > search.pdf

text is for the terminal, svg a picture, html a page that replays the search
and shows its pages, dot a graph for Graphviz. docs/trace.md has the format of
the file. Where its last line breaks off, as while a search still runs, it is
drawn up to there. Exit code: 0, or 2 if the file cannot be read, has a bad
line, or the picture cannot be written.)";

}  // namespace espalier::cli
