// Error: the error of a call, as OpenAI's API writes it:
//
//   {"error": {"message": "n must be at most 128 (--max-n), got 500",
//              "type": "invalid_request_error", "param": "n", "code": null}}
//
// Code of this folder, and below it, returns absl::Status; ErrorOf converts one
// to an HTTP error.
//
// Thread safety: values; functions without state.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace espalier::openai {

struct Call;

struct Error {
  int http_status = 500;
  std::string message;
  std::string type = "server_error";
  std::string param = "";  // the field that is wrong; empty: null
  std::string code = "";   // for programs; empty: null
  int retry_after_s = 0;   // header Retry-After; 0: none
  // Sends the header "x-should-retry: false", because the client no longer
  // waits: OpenAI's clients retry some statuses, such as 504.
  bool is_final = false;
};

// Returns the error of an HTTP status, with the type and code that OpenAI's API
// has for it.
Error MakeHttpError(int http_status, std::string_view message);

// Returns the error of a model that is not served: field "model", code
// model_not_found.
absl::Status ModelNotFound(std::string_view message);

// Converts a status to an HTTP error:
//
//   kInvalidArgument, kOutOfRange   400; `param` is the field that the message
//                                   begins with, or of RefuseField
//   kNotFound                       404
//   kUnauthenticated                401
//   kResourceExhausted              429 with Retry-After where requests wait or
//                                   memory is short; 400 if IsPermanent
//                                   (base/status.h)
//   kFailedPrecondition             400: what the model lacks, or no token was
//                                   possible
//   kDeadlineExceeded               504, final
//   kAborted                        499: by a client
//   kUnavailable                    503 with Retry-After
//   kCancelled                      503: the server ends
//   others                          500
//
// A request that exceeds the model's context has the code
// "context_length_exceeded". With `call`, params have the call's names:
// max_tokens, not max_new_tokens, and for a chat messages, not prompt.
Error ErrorOf(const absl::Status& status, const Call* call = nullptr);

// Returns `error` with the names that the call uses.
absl::Status InWordsOf(const Call& call, const absl::Status& error);

// Returns the error whose Error has this `param`, regardless of how its message
// begins.
absl::Status WithParam(absl::Status error, std::string_view param);

// Returns kInvalidArgument with `param`.
absl::Status RefuseField(std::string_view param, std::string_view message);

// {"error": {"message", "type", "param", "code"}}.
std::string WriteError(const Error& error);

}  // namespace espalier::openai
