#include "examples/cli/commands/trace_command.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "examples/cli/input/line_reader.h"
#include "examples/cli/output/output.h"
#include "trace/trace_dot.h"
#include "trace/trace_html.h"
#include "trace/trace_json.h"
#include "trace/trace_svg.h"
#include "trace/trace_text.h"
#include "trace/trace_tree.h"

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

// Returns the format of the output's name where --to is not given.
// Errors: kInvalidArgument for one that Graphviz writes.
absl::StatusOr<std::string> FormatOf(const TraceOptions& options) {
  constexpr std::pair<std::string_view, std::string_view> kEndings[] = {
      {".svg", "svg"}, {".html", "html"}, {".htm", "html"},
      {".dot", "dot"}, {".gv", "dot"},    {".txt", "text"}};
  if (!options.format.empty()) return options.format;
  const std::string name = absl::AsciiStrToLower(options.output);
  for (const auto& [ending, format] : kEndings) {
    if (name.ends_with(ending)) return std::string(format);
  }
  for (const std::string_view ending :
       {"bmp", "eps", "gif", "jpeg", "jpg", "pdf", "png", "ps", "tif", "tiff",
        "webp"}) {
    if (!name.ends_with(Concat(".", ending))) continue;
    return InvalidArgument(options.names.Of("output"),
                           " must end in .svg, .html, .dot or .txt, got ",
                           InQuotes(options.output),
                           "; Graphviz writes others: espalier trace ",
                           "FILE --to dot | dot -T", ending, " -o OUTPUT");
  }
  return "text";
}

// Reads events, and keeps those of the requests that are wanted.
class TraceFilter {
 public:
  // `request` is TraceOptions::request.
  explicit TraceFilter(std::optional<std::string> request)
      : request_(std::move(request)) {}

  // Errors: kInvalidArgument on the line.
  absl::Status AddLine(std::string_view line);

  // Returns the requested trees. `file` is the source's name.
  // Errors: kInvalidArgument that lists the requests of the trace, if the
  // requested one is not among them.
  absl::StatusOr<TraceTrees> Take(const std::string& file);

 private:
  struct Request {
    int64_t number;
    std::optional<std::string> id;
  };

  std::string DescribeRequests() const;

  const std::optional<std::string> request_;
  std::vector<Request> requests_;  // all that have begun
  std::set<int64_t> by_id_;        // numbers of those of the id
  TraceTrees of_id_;
  TraceTrees of_number_;  // or all, if there is nothing to choose
};

absl::Status TraceFilter::AddLine(std::string_view line) {
  if (line.size() > kMaxLineBytes) {
    return InvalidArgument("an event may have ", kMaxLineBytes,
                           " bytes, this one has more");
  }
  ASSIGN_OR_RETURN(TraceEvent event, ParseTraceLine(line));
  const int64_t number = RequestOf(event).value;
  if (const auto* begin = std::get_if<TraceRequest>(&event)) {
    requests_.push_back({number, begin->caller_id});
    if (request_ && begin->caller_id == request_) by_id_.insert(number);
  }
  if (by_id_.contains(number)) return of_id_.Add(std::move(event));
  if (request_ && *request_ != Concat(number)) return absl::OkStatus();
  return of_number_.Add(std::move(event));
}

absl::StatusOr<TraceTrees> TraceFilter::Take(const std::string& file) {
  if (!of_id_.trees().empty()) return std::move(of_id_);
  if (!of_number_.trees().empty()) return std::move(of_number_);
  if (requests_.empty()) return InvalidArgument("no request in ", file);
  return InvalidArgument("no request ", Shown(ForTerminal(*request_)), " in ",
                         file, ", which has ",
                         Pluralize(requests_.size(), "request"), ": ",
                         DescribeRequests());
}

// "0", "0 to 41", "0, 2, 5 and 7 more", or "0 (id a) and 1 (id b)"
std::string TraceFilter::DescribeRequests() const {
  constexpr size_t kMaxListed = 8;
  const auto [first, last] =
      std::ranges::minmax(requests_, {}, &Request::number);
  const bool have_ids = std::ranges::any_of(requests_, [](const Request& r) {
    return r.id && *r.id != Concat(r.number);
  });
  if (requests_.size() == 1 && !have_ids) return Concat(first.number);
  // Unsigned, because a file may have numbers that are any distance apart.
  const uint64_t span = static_cast<uint64_t>(last.number) - first.number;
  if (span + 1 == requests_.size() && !have_ids) {
    return Concat(first.number, " to ", last.number);
  }
  const size_t num_listed = std::min(requests_.size(), kMaxListed);
  std::vector<std::string> words;
  for (const Request& r : std::span(requests_).first(num_listed)) {
    words.push_back(Concat(r.number, r.id ? " (id " + Shown(*r.id) + ")" : ""));
  }
  if (num_listed < requests_.size()) {
    words.push_back(Concat(requests_.size() - num_listed, " more"));
  }
  return JoinWithAnd(words);
}

// Explains traces in an error about the first line, where the file is no trace
// at all.
absl::Status AppendHint(const absl::Status& error, int64_t line_number,
                        const std::string& line) {
  const bool is_too_long = line.size() > kMaxLineBytes;
  if (line_number > 1 || is_too_long || ParseTraceLine(line).ok()) return error;
  return MakeError(error.code(), Message(error),
                   "; a trace is what espalier generate and batch write with "
                   "--trace");
}

// Errors: as above, after "FILE:LINE: ", lines counted from 1.
absl::StatusOr<TraceTrees> ReadTrace(const TraceOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                   LineReader::Open(options.file));
  TraceFilter filter(options.request);
  int64_t line_number = 0;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader->Read());
    if (lines.empty()) break;
    for (const std::string& line : lines) {
      ++line_number;
      const absl::Status status = filter.AddLine(line);
      if (status.ok()) continue;
      const std::string where = Concat(reader->name(), ":", line_number);
      const bool is_cut = reader->ended_within_line() && line_number > 1 &&
                          !ParseJson(line).ok();
      if (!is_cut)
        return Annotate(AppendHint(status, line_number, line), where);
      // The writing program was killed, or still writes.
      PrintToStderr(Concat("espalier: ", where, ": the last line has no end, ",
                           "and is left out\n"));
    }
  }
  return filter.Take(reader->name());
}

}  // namespace

absl::StatusOr<int> DrawTrace(const TraceOptions& options) {
  ASSIGN_OR_RETURN(const std::string format, FormatOf(options));
  const auto render = Renderers().find(format);
  if (render == Renderers().end()) {
    return InvalidArgument("--to must be text, svg, html or dot, got ",
                           InQuotes(format));
  }
  const std::string path = OutputPath(options.output);
  if (IsSameFile(InputPath(options.file), path)) {
    return InvalidArgument("the trace and ", options.names.Of("output"),
                           " are the same file, ", path);
  }
  ASSIGN_OR_RETURN(const TraceTrees trees, ReadTrace(options));
  const absl::StatusOr<std::unique_ptr<Output>> output =
      Output::Open(options.output);
  if (!output.ok())
    return Annotate(output.status(), options.names.Of("output"));
  (*output)->CutToNothing();
  (*output)->Write(render->second(trees.trees()));
  RETURN_IF_ERROR((*output)->Close());
  return kAllSucceeded;
}

const char kTraceExamples[] =
    R"(Examples:
  espalier generate -m models/en-fr --num-beams 4 --trace search.jsonl \
    "It rains."
  espalier trace search.jsonl
  espalier trace search.jsonl -o search.html
  espalier trace search.jsonl --to dot | dot -Tpdf > search.pdf

text is for the terminal, svg a picture, html a page that replays the search
and shows its pages, dot a graph for Graphviz. docs/trace.md has the format of
the file. Where its last line breaks off, as while a search still runs, it is
drawn up to there. Exit code: 0, or 2 if the file cannot be read, has a bad
line, or the picture cannot be written.)";

}  // namespace espalier::cli
