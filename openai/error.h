// Error: why a call is not answered, as OpenAI's API tells it:
//
//   {"error": {"message": "n must be at most 128 (--max-n), got 500",
//              "type": "invalid_request_error", "param": "n", "code": null}}
//
// Within this room, and below it, what goes wrong is an absl::Status; ErrorOf
// says what HTTP makes of one.
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
  std::string code = "";   // what a program tells it by; empty: null
  int retry_after_s = 0;   // of the header Retry-After; 0: none
  // Nobody waits for an answer any more: the header "x-should-retry: false",
  // for OpenAI's clients send requests of some statuses, 504 among them, again.
  bool is_final = false;
};

// The error of this HTTP status: type and code are those that OpenAI's API has
// for it.
Error MakeHttpError(int http_status, std::string_view message);

// The error of a model that is not served: of the field "model", with the code
// model_not_found.
absl::Status ModelNotFound(std::string_view message);

// What a status means to a client:
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
// What does not fit into the model's context has the code
// "context_length_exceeded". With `call`, params are called what it calls them:
// max_tokens, not max_new_tokens, and of a chat messages, not prompt.
Error ErrorOf(const absl::Status& status, const Call* call = nullptr);

// The same status, an error in the words of the call.
absl::Status InWordsOf(const Call& call, const absl::Status& error);

// kInvalidArgument, whose Error has this `param`, whatever `message` begins
// with.
absl::Status RefuseField(std::string_view param, std::string_view message);

// {"error": {"message", "type", "param", "code"}}.
std::string WriteError(const Error& error);

}  // namespace espalier::openai
