// The answers of the routes of files and batches, and the calls that batches
// make.
//
// REQUIRES: server.jobs is not null (Route::is_job).
//
// Thread safety: the thread of the call's connection.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "jobs/batches.h"
#include "serve/route_call.h"
#include "serve/server_state.h"

namespace espalier::serve::routes {

RouteWork AddFile(ServerState& server, RouteCall& call);
RouteWork ListFiles(ServerState& server, RouteCall& call);
RouteWork File(ServerState& server, RouteCall& call);
RouteWork RemoveFile(ServerState& server, RouteCall& call);
RouteWork CreateBatch(ServerState& server, RouteCall& call);
RouteWork ListBatches(ServerState& server, RouteCall& call);
RouteWork Batch(ServerState& server, RouteCall& call);
RouteWork CancelBatch(ServerState& server, RouteCall& call);
RouteWork FileContent(ServerState& server, RouteCall& call);

}  // namespace espalier::serve::routes

namespace espalier::serve {

// Makes a call of a batch, by the path of all calls.
boost::asio::awaitable<openai::BatchOutcome> RunStored(ServerState& server,
                                                       jobs::RunningCall call);

}  // namespace espalier::serve
