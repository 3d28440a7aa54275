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

// Both return error 415, naming the header and its value, or nullopt if the
// body may be read.

// Refuses a body that is not declared as JSON, or not in UTF-8.
std::optional<openai::Error> CheckJsonHeaders(const http::Request& request);
// Refuses a compressed body, and adds to `*headers` of the answer the encoding
// that is accepted.
std::optional<openai::Error> CheckContentEncoding(
    const http::Request& request, std::vector<http::Header>* headers);

}  // namespace espalier::serve
