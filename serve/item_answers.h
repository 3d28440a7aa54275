// The answers of the routes of catalogues of items
// (constrain/item_catalogues.h): PUT /v1/items/{name} adds or replaces one,
// DELETE removes it, and GET /v1/items lists them. Calls that have been made
// ready keep their version.
//
// Thread safety: the thread of the call's connection; a catalogue is built on a
// thread of its own (ServerState::building).
#pragma once

#include "serve/route_call.h"
#include "serve/server_state.h"

namespace espalier::serve::routes {

RouteWork PutItems(ServerState& server, RouteCall& call);
RouteWork ListItems(ServerState& server, RouteCall& call);
RouteWork RemoveItems(ServerState& server, RouteCall& call);

}  // namespace espalier::serve::routes
