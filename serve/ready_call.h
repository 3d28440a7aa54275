// ReadyCall: a client's call that has been read, checked and made into requests
// that only have to run. Making one is all the work on a call that takes longer
// the longer its body is; what its prompts share, such as lists of tokens, is
// made once.
//
// Thread safety: a value; the function from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "openai/call.h"
#include "openai/error.h"
#include "openai/limits.h"
#include "serve/prompt_requests.h"
#include "serve/served_model.h"

namespace espalier::serve {

struct ReadyCall {
  openai::Call call;
  int64_t num_body_bytes = 0;
  std::vector<PromptRequest> prompts;  // or sentences of them
  // Why it is not answered; then there are no prompts.
  std::optional<openai::Error> refusal;
};

// A call of more bytes is made ready on a thread that no connection waits for:
// this takes up to some milliseconds.
inline constexpr size_t kMaxCallBytesOnIoThread = 16 << 10;

// Bytes that a call holds for each byte of a long body, at most: an element of
// a list, some ten bytes of JSON, becomes a vector of ids, what sorts and finds
// it among others, and what selection makes of it.
inline constexpr int64_t kHeldPerBodyByte = 16;

// `caller` gets the call's own request id, if it has one. Compiles no
// constraint (Engine::Prepared::uncompiled).
ReadyCall MakeReadyCall(openai::Api api, std::string_view body,
                        const openai::Limits& limits, ServedModel& model,
                        Caller caller);

}  // namespace espalier::serve
