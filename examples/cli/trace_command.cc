#include "examples/cli/trace_command.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "examples/cli/line_reader.h"
#include "examples/cli/options.h"
#include "examples/cli/trace_dot.h"
#include "examples/cli/trace_html.h"
#include "examples/cli/trace_svg.h"
#include "examples/cli/trace_text.h"
#include "examples/cli/trace_tree.h"
#include "exec_request/trace_json.h"

namespace espalier::cli {
namespace {

struct TraceOptions {
  std::string file;
  std::string format = "text";
  std::string output = "-";
  std::optional<int64_t> request;  // only this one
};

using Render = std::string (*)(const std::deque<TraceTree>&);

const std::map<std::string, Render>& Renderers() {
  static const auto* const renderers =
      new std::map<std::string, Render>{{"dot", RenderTraceDot},
                                        {"html", RenderTraceHtml},
                                        {"svg", RenderTraceSvg},
                                        {"text", RenderTraceText}};
  return *renderers;
}

absl::Status AddLine(const TraceOptions& options, std::string_view line,
                     TraceTrees* trees) {
  if (line.size() > kMaxLineBytes) {
    return InvalidArgument("an event may have ", kMaxLineBytes, " bytes");
  }
  ASSIGN_OR_RETURN(TraceEvent event, ParseTraceLine(line));
  if (options.request && RequestOf(event).value != *options.request) {
    return absl::OkStatus();
  }
  return trees->Add(std::move(event));
}

// Errors: as above, after "FILE:LINE: ", lines counted from 1.
absl::StatusOr<TraceTrees> ReadTrace(const TraceOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                   LineReader::Open(options.file));
  TraceTrees trees;
  int64_t line_number = 0;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader->Read());
    if (lines.empty()) break;
    for (const std::string& line : lines) {
      ++line_number;
      if (const absl::Status status = AddLine(options, line, &trees);
          !status.ok()) {
        return Annotate(status, Concat(options.file, ":", line_number));
      }
    }
  }
  if (trees.trees().empty()) {
    return InvalidArgument("no request in ", options.file);
  }
  return trees;
}

absl::Status Write(const std::string& path, const std::string& text) {
  FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return FailedPrecondition("cannot write --output ", path, ": ",
                              std::strerror(errno));
  }
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  written = std::fflush(file) == 0 && written;
  if (file != stdout) written = std::fclose(file) == 0 && written;
  if (!written) return Internal("cannot write --output ", path);
  return absl::OkStatus();
}

absl::Status Draw(const TraceOptions& options) {
  ASSIGN_OR_RETURN(const TraceTrees trees, ReadTrace(options));
  return Write(options.output, Renderers().at(options.format)(trees.trees()));
}

constexpr char kExamples[] =
    "Examples:\n"
    "  espalier generate -m models/en-fr --num-beams 4 --trace search.jsonl "
    "\"It rains.\"\n"
    "  espalier trace search.jsonl\n"
    "  espalier trace search.jsonl --to html -o search.html\n"
    "  espalier trace search.jsonl --to dot | dot -Tpdf > search.pdf\n"
    "\n"
    "text is for the terminal, svg a picture, html a page that replays the\n"
    "search and shows its pages, dot a graph for Graphviz. docs/trace.md has\n"
    "the format of the file. Exit code: 0, or 2 if the file cannot be read,\n"
    "has a bad line, or the picture cannot be written.";

}  // namespace

void AddTraceCommand(CLI::App* app, int* exit_code) {
  CLI::App* command =
      app->add_subcommand("trace", "the tree of a search as a picture");
  const auto options = std::make_shared<TraceOptions>();
  command
      ->add_option("file", options->file,
                   "what --trace has written; - is stdin")
      ->required();
  command->add_option("--to", options->format, "text, svg, html or dot")
      ->check(CLI::IsMember(Renderers()))
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "a file; - is stdout")
      ->capture_default_str();
  command->add_option("--request", options->request,
                      "the number of the one request to draw");
  command->footer(kExamples);
  command->callback([options, exit_code] {
    const absl::Status status = Draw(*options);
    *exit_code = status.ok() ? kAllSucceeded : Refuse(status);
  });
}

}  // namespace espalier::cli
