// The checks of a call that depend on several of its fields, once all are read.
//
// Thread safety: functions without state.
#pragma once

#include "absl/status/status.h"
#include "openai/call.h"
#include "request/generation_params.h"

namespace espalier::openai {

struct CallDraft;      // openai/call_draft.h
class ServerDefaults;  // openai/server_defaults.h

// Checks and resolves what depends on several fields: beams, log-probabilities,
// limits.
// Errors: kInvalidArgument naming the field and the value.
absl::Status SettleCall(CallDraft* draft);

// Checks fields against the kind of prompt: "template" needs a text prompt and
// special tokens; only a chat may continue its last message.
// Errors: kInvalidArgument naming the field and the value.
absl::Status SettlePrompts(CallDraft* draft);

// Checks the resolved params of a call against the limits of its server.
// ReadCall has checked the ones that the call gives. `server` holds the
// defaults that they were resolved with; null: no defaults yet.
// Errors: kInvalidArgument naming the field, the value, the flag, and whose
// default it is if it is one.
absl::Status CheckLimits(const Call& call, const GenerationParams& params,
                         const ServerDefaults* server);

}  // namespace espalier::openai
