// One connection without a network, for tests and fuzzing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "http/exchange.h"
#include "http/server.h"

namespace espalier::http {

// Returns the answer to a client that sends `bytes`, `piece` of them at a
// time (0: all at once), and then closes its sending half. Runs on the calling
// thread, over a pair of sockets, until the server has closed its end. The
// options that count are limits, error_response, head_check,
// streamed_body_limit and answer_log. A handler must not wait for anything that
// other threads do.
std::string ServeBytes(std::string_view bytes, size_t piece,
                       const ServerOptions& options, const Handler& handler);

}  // namespace espalier::http
