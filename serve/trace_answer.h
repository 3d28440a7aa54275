// TraceAnswer: the answer to `GET /v1/requests/{id}/trace`, the traces of a
// request (request_traces.h) as lines of JSON, or as the page that `espalier
// trace` makes of them (docs/trace.md).
//
// Thread safety: functions without state. To draw a page of a wide search takes
// a while (docs/trace.md), which belongs on no thread that others wait for.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "serve/request_traces.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::serve {

enum class TraceFormat { kLines, kPage };

// Chooses by `format` in a URL's query, "jsonl" or "html"; without it by the
// header Accept: the page if that accepts text/html and does not name JSON.
// Errors: kInvalidArgument naming `format` and its value.
absl::StatusOr<TraceFormat> ChooseTraceFormat(std::string_view query,
                                              std::string_view accept);

struct TraceQuery {
  std::string id;        // in the traces
  std::string shown_id;  // in the answer: the client's, without its API key
  TraceFormat format = TraceFormat::kLines;
};

struct TraceAnswer {
  std::string content_type = {};
  // The header of this name: what a page may do. Empty for lines.
  std::string content_security_policy = {};
  std::string body = {};
};

// Adds texts of tokens if there is a tokenizer.
// Errors: as RequestTraces::Find.
absl::StatusOr<TraceAnswer> AnswerTrace(const RequestTraces& traces,
                                        const TraceQuery& query,
                                        const Tokenizer* tokenizer);

}  // namespace espalier::serve
