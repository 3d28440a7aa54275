// The answers of all routes (routes.h) but those of files and batches
// (job_answers.h). Each answers one call, with its result or an error.
//
// Thread safety: the thread of the call's connection; work that takes long, or
// that the engine does, leaves it (server_state.h).
#pragma once

#include "serve/route_call.h"
#include "serve/server_state.h"

namespace espalier::serve::routes {

RouteWork Health(ServerState& server, RouteCall& call);
RouteWork Ready(ServerState& server, RouteCall& call);
RouteWork Version(ServerState& server, RouteCall& call);
RouteWork Metrics(ServerState& server, RouteCall& call);
RouteWork ServerLoad(ServerState& server, RouteCall& call);
RouteWork Load(ServerState& server, RouteCall& call);
RouteWork Models(ServerState& server, RouteCall& call);
RouteWork Model(ServerState& server, RouteCall& call);
RouteWork Page(ServerState& server, RouteCall& call);
RouteWork Trace(ServerState& server, RouteCall& call);
RouteWork Tokenize(ServerState& server, RouteCall& call);
RouteWork Detokenize(ServerState& server, RouteCall& call);
RouteWork TokenizerInfo(ServerState& server, RouteCall& call);
RouteWork ResetPrefixCache(ServerState& server, RouteCall& call);
RouteWork UpdateWeights(ServerState& server, RouteCall& call);
RouteWork AbortRequests(ServerState& server, RouteCall& call);
RouteWork RenderCompletions(ServerState& server, RouteCall& call);
RouteWork RenderChatCompletions(ServerState& server, RouteCall& call);
RouteWork Completions(ServerState& server, RouteCall& call);
RouteWork ChatCompletions(ServerState& server, RouteCall& call);
RouteWork Responses(ServerState& server, RouteCall& call);
RouteWork GenerateTokens(ServerState& server, RouteCall& call);
RouteWork Score(ServerState& server, RouteCall& call);

}  // namespace espalier::serve::routes
