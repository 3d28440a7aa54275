// Access of web pages to a server. A browser sends the page's origin in
// `Origin`, and lets the page read an answer only if the answer allows it
// (CORS: https://fetch.spec.whatwg.org/#http-cors-protocol).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "http/message.h"

namespace espalier::serve {

// True if a name in `Host` cannot be a foreign one that leads here (DNS
// rebinding): an address, or a name without a dot, as proxies of this machine
// have for it, or one below ".localhost".
bool IsOwnHost(std::string_view host);

// True if a page of this origin may call without being allowed to: on the
// loopback network one of this machine, else one that the server itself has
// sent.
bool IsOwnOrigin(std::string_view origin, std::string_view host,
                 bool is_loopback);

// The origins of pages that may call, and read the answers.
//
// Thread safety: constant after construction; any thread may call.
class AllowedOrigins {
 public:
  AllowedOrigins() = default;  // none
  // Each a scheme, a host and maybe a port, "https://chat.example.com:8443"; or
  // "null", which is what files and sandboxed pages have; or "*", all of them.
  // Errors: kInvalidArgument naming the one that is none of these.
  static absl::StatusOr<AllowedOrigins> Make(std::vector<std::string> origins);

  bool Allow(std::string_view origin) const;
  // Adds to `headers` the permission for the page that sent the request to read
  // the answer, if it has one.
  void AddHeaders(const http::Request& request,
                  std::vector<http::Header>* headers) const;
  // True if a browser asks for permission before a page's request (preflight).
  // Such a request has no key.
  bool IsPreflight(const http::Request& request) const;
  // The answer: everything that the server takes. `headers` are those of every
  // answer.
  // REQUIRES: IsPreflight(request).
  static http::Response AnswerPreflight(const http::Request& request,
                                        std::vector<http::Header> headers);

 private:
  std::vector<std::string> origins_;
  bool is_any_ = false;
};

}  // namespace espalier::serve
