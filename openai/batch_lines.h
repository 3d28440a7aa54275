// The lines of a batch: calls of its input, and their results.
//
//   {"custom_id": "a", "method": "POST", "url": "/v1/completions",
//    "body": {"prompt": "Hello"}}
//
//   {"id": "batch_req_..._7", "custom_id": "a",
//    "response": {"status_code": 200, "request_id": "...", "body": {...}},
//    "error": null}
//
// The id of a result ends in the number of its line in the input, from 0, so
// that the results alone show which calls have been answered.
//
// Thread safety: values; functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "openai/call.h"

namespace espalier::openai {

// The API that a batch may call at this path; nothing if there is none.
std::optional<Api> FindBatchApi(std::string_view endpoint);
// Errors: kInvalidArgument with those that there are.
absl::Status CheckBatchEndpoint(std::string_view endpoint);

struct BatchCall {
  std::string custom_id;
  std::string_view body;  // part of the line, valid JSON
};

// Reason for refusing a line; `code` is OpenAI's.
struct BatchLineError {
  std::string code;
  std::string message;
  std::string param = {};  // member that is wrong; empty: none
};

// A call to `endpoint` in `line`. Nothing and `*error` if there is none.
std::optional<BatchCall> ReadBatchCall(std::string_view line,
                                       std::string_view endpoint,
                                       BatchLineError* error);

// The result of a call.
struct BatchOutcome {
  int http_status = 0;  // 0: it was not made, by `error`
  std::string request_id = {};
  std::string body = {};  // JSON
  BatchLineError error = {};

  bool is_success() const { return http_status / 100 == 2; }
};

// The line of a result, with its line end.
std::string WriteBatchResult(std::string_view batch_id, int64_t line,
                             std::string_view custom_id,
                             const BatchOutcome& outcome);

// Returns the number of the input line whose result `text` is, without its line
// end; nothing if it is no whole result of this batch.
std::optional<int64_t> LineOfBatchResult(std::string_view batch_id,
                                         std::string_view text);

}  // namespace espalier::openai
