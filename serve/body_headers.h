// Checks of the headers of a body, which is taken as it comes, as JSON in
// UTF-8.
//
// Thread safety: functions without state.
#pragma once

#include <optional>
#include <vector>

#include "http/message.h"
#include "openai/error.h"

namespace espalier::serve {

// The answer to a request whose headers say that its body is something else,
// 415, which names the header and its value; nothing if it may be read. Adds to
// `*headers` of that answer what would be taken.
std::optional<openai::Error> CheckBodyHeaders(
    const http::Request& request, std::vector<http::Header>* headers);

}  // namespace espalier::serve
