// The request format, the way out: one JSON object a line
// (docs/request_format.md).
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "base/json.h"
#include "exec_request/request.h"

namespace espalier {

// {"id", "hypotheses": [...], "usage": {...}}, and what else was asked for.
//   texts  [hypotheses]  or empty: "text" is left out then
std::string WriteResultLine(const json::value& id, const Result& result,
                            std::span<const std::string> texts);
// {"id", "error": {"code", "message"}}.
std::string WriteErrorLine(const json::value& id, const absl::Status& error);

}  // namespace espalier
