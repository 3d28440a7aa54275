// TraceAnswer: the answer to `GET /v1/requests/{id}/trace`, the traces of a
// request (request_traces.h) as lines of JSON, or as the page that `espalier
// trace` makes of them (docs/trace.md).
//
// Thread safety: functions without state. Drawing the page of a wide search is
// slow, so do not call AnswerTrace on a thread that serves other calls.
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
  // Value of the Content-Security-Policy header; empty for kLines.
  std::string content_security_policy = {};
  std::string body = {};
};

// Returns the traces of the request `query.id` in `query.format`, with the
// texts of tokens if `tokenizer` is not null. Errors: as RequestTraces::Find;
// for kPage also as TraceTrees::Add.
absl::StatusOr<TraceAnswer> AnswerTrace(const RequestTraces& traces,
                                        const TraceQuery& query,
                                        const Tokenizer* tokenizer);

}  // namespace espalier::serve
