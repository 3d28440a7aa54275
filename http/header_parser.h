// The head of a request as a value: what Boost.Beast's grammar takes, and what
// RFC 9112 and we refuse beyond that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/limits.h"
#include "http/message.h"

namespace espalier::http {

// The answer to a request that HTTP refuses. The message says what is wrong,
// with the limit where one is passed.
struct Refusal {
  int status = 400;
  std::string message;
};

struct RequestHead {
  Request request;  // without its body
  bool is_http_1_0 = false;
  bool keep_alive = false;
  bool expects_continue = false;
  bool is_chunked = false;
  uint64_t content_length = 0;  // where it is not chunked
};

// Parses a request line and headers, with the empty line that ends them.
// `text` has no control characters but tabs and pairs of CR and LF. Exactly one
// of the two is returned: *head is complete if there is no refusal. It is 431
// for more than `max_headers` headers, of which no more are kept.
std::optional<Refusal> ParseRequestHead(std::string_view text,
                                        const NamedLimit& max_headers,
                                        RequestHead* head);

}  // namespace espalier::http
