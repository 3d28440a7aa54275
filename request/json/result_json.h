// The request format, the way out: one JSON object a line
// (docs/request_format.md). Lines are written straight from the result: that
// of a million samples is as much memory as its bytes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "request/request.h"

namespace espalier {

// Writes {"id", "hypotheses": [...], "usage": {...}}, and the requested
// reports.
//   id     JSON, as RequestLine has it
//   texts  [hypotheses]  or empty: "text" is left out then
std::string WriteResultLine(std::string_view id, const Result& result,
                            std::span<const std::string> texts);
// {"id", "error": {"code", "message"}}.
std::string WriteErrorLine(std::string_view id, const absl::Status& error);

}  // namespace espalier
