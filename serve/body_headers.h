// Checks of the headers of a body, which is taken as it comes: not compressed,
// and JSON in UTF-8 where a route takes JSON.
//
// Thread safety: functions without state.
#pragma once

#include <optional>
#include <vector>

#include "http/message.h"
#include "openai/error.h"

namespace espalier::serve {

// Returns error 415 for a request whose headers declare an unsupported body; it
// names the header and its value. Nullopt if the body may be read. Adds the
// supported values to `*headers` of that answer.
std::optional<openai::Error> CheckJsonHeaders(const http::Request& request);
std::optional<openai::Error> CheckContentEncoding(
    const http::Request& request, std::vector<http::Header>* headers);

}  // namespace espalier::serve
