// The head of an answer as text.
#pragma once

#include <string>
#include <string_view>

#include "http/message.h"

namespace espalier::http {

enum class BodyFraming {
  kLength,      // Content-Length
  kChunked,     // Transfer-Encoding
  kUntilClose,  // all until the connection ends
};

struct Framing {
  BodyFraming body = BodyFraming::kLength;
  bool close = false;            // Connection: close
  bool says_keep_alive = false;  // for HTTP/1.0, whose default is to close
};

// The status line, the headers and the empty line after them, appended to
// *head. `date` is the value of that header.
void AppendResponseHead(const Response& response, const Framing& framing,
                        std::string_view date, std::string* head);

// True if an answer of this status has no body (RFC 9110, section 6.4.1).
bool HasNoBody(int status);

}  // namespace espalier::http
