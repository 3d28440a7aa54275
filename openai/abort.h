// POST /abort_requests, as vLLM has it: ends calls by their ids.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "openai/limits.h"

namespace espalier::openai {

// {"request_ids": ID or [ID, ...]}: ids of answers, or of requests.
// Errors: kInvalidArgument naming the byte or the field, and the value.
absl::StatusOr<std::vector<std::string>> ReadAbortCall(std::string_view body,
                                                       const Limits& limits);

}  // namespace espalier::openai
