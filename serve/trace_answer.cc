#include "serve/trace_answer.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "openai/error.h"
#include "trace/token_texts.h"
#include "trace/trace_html.h"
#include "trace/trace_json.h"
#include "trace/trace_tree.h"

namespace espalier::serve {
namespace {

// The script and the styles are in the page, with the texts of the model, which
// are data to them. `sandbox` gives the page an origin of its own, so that
// nothing in it could call the server in its user's name.
constexpr std::string_view kTracePagePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; sandbox allow-scripts";

// The value of `format` in "a=b&format=html"; null data if it is not there.
std::string_view FormatIn(std::string_view query) {
  constexpr std::string_view kName = "format=";
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    if (part.starts_with(kName)) return part.substr(kName.size());
    query.remove_prefix(std::min(query.size(), part.size() + 1));
  }
  return {};
}

// Shows `shown_id` if the request has an id.
void ShowId(const std::string& shown_id, TraceEvent* event) {
  auto* const request = std::get_if<TraceRequest>(event);
  if (request != nullptr && request->caller_id) request->caller_id = shown_id;
}

// Calls `take` with each event, its texts added.
template <typename Take>
void ForEachEvent(const RequestTraces::Found& traces,
                  const std::string& shown_id, const Tokenizer* tokenizer,
                  const Take& take) {
  for (const auto& trace : traces) {
    for (TraceEvent event : trace->events) {
      ShowId(shown_id, &event);
      if (tokenizer != nullptr) AddTokenTexts(*tokenizer, &event);
      take(std::move(event));
    }
  }
}

}  // namespace

absl::StatusOr<TraceFormat> ChooseTraceFormat(std::string_view query,
                                              std::string_view accept) {
  const std::string_view format = FormatIn(query);
  if (format == "jsonl") return TraceFormat::kLines;
  if (format == "html") return TraceFormat::kPage;
  if (format.data() != nullptr) {
    return openai::RefuseField(
        "format",
        Concat("format must be jsonl or html, got ", BytesInQuotes(format)));
  }
  const bool takes_page = accept.find("text/html") != accept.npos &&
                          accept.find("json") == accept.npos;
  return takes_page ? TraceFormat::kPage : TraceFormat::kLines;
}

absl::StatusOr<TraceAnswer> AnswerTrace(const RequestTraces& traces,
                                        const TraceQuery& query,
                                        const Tokenizer* tokenizer) {
  ASSIGN_OR_RETURN(const RequestTraces::Found found,
                   traces.Find(query.id, query.shown_id));
  if (query.format == TraceFormat::kLines) {
    TraceAnswer answer{.content_type = "application/jsonl"};
    ForEachEvent(found, query.shown_id, tokenizer, [&](TraceEvent event) {
      answer.body += WriteTraceLine(event);
      answer.body += '\n';
    });
    return answer;
  }
  TraceTrees trees;
  absl::Status status;
  ForEachEvent(found, query.shown_id, tokenizer, [&](TraceEvent event) {
    if (status.ok()) status = trees.Add(std::move(event));
  });
  RETURN_IF_ERROR(status);
  return TraceAnswer{.content_type = "text/html; charset=utf-8",
                     .content_security_policy = std::string(kTracePagePolicy),
                     .body = RenderTraceHtml(trees.trees())};
}

}  // namespace espalier::serve
