// RouteCall: a call that has passed the checks of every call (server_core.h)
// and waits for the answer of its route, and the ways to send one.
//
// Thread safety: the thread of its connection.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "http/exchange.h"
#include "openai/error.h"
#include "serve/prompt_requests.h"

namespace espalier::serve {

struct RouteCall {
  http::Exchange& exchange;
  Caller caller;
  std::string id;  // {id} in the path, if the route has one
};

// Returns 96 unpredictable bits in hexadecimal: the id of a call whose client
// gives none.
std::string NewRequestId();

// The answer of a route to a call.
using RouteWork = boost::asio::awaitable<void>;

// Each sends the whole answer, with the headers of the caller.
RouteWork RespondJson(RouteCall& call, std::string body);
RouteWork Refuse(RouteCall& call, const openai::Error& error);
// A body as JSON, or an error.
RouteWork RespondOr(RouteCall& call, absl::StatusOr<std::string> body);

}  // namespace espalier::serve
