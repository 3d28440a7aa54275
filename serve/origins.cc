#include "serve/origins.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "serve/server_options.h"

namespace espalier::serve {
namespace {

// "localhost" of "localhost:8000", "::1" of "[::1]:8000".
std::string HostOf(std::string_view authority) {
  if (authority.starts_with('[')) {
    return std::string(authority.substr(1, authority.find(']') - 1));
  }
  return std::string(authority.substr(0, authority.find(':')));
}

bool IsOrigin(std::string_view text) {
  if (text == "null" || text == "*") return true;
  const size_t slashes = text.find("://");
  if (slashes == 0 || slashes == text.npos) return false;
  const std::string_view authority = text.substr(slashes + 3);
  return !authority.empty() && std::ranges::all_of(text, [](char c) {
    return c > ' ' && c <= '~';
  }) && authority.find_first_of("/?#@*,") == authority.npos;
}

}  // namespace

bool IsOwnHost(std::string_view host) {
  std::string name = HostOf(host);
  if (name.ends_with('.')) name.pop_back();  // the root's
  boost::system::error_code error;
  boost::asio::ip::make_address(name, error);
  return !error || name.find('.') == name.npos || name.ends_with(".localhost");
}

bool IsOwnOrigin(std::string_view origin, std::string_view host,
                 bool is_loopback) {
  const size_t slashes = origin.find("://");
  if (slashes == origin.npos) return false;
  const std::string_view authority = origin.substr(slashes + 3);
  if (is_loopback) return IsLoopback(HostOf(authority));
  return absl::EqualsIgnoreCase(ToAbsl(authority), ToAbsl(host));
}

absl::StatusOr<AllowedOrigins> AllowedOrigins::Make(
    std::vector<std::string> origins) {
  for (const std::string& origin : origins) {
    if (IsOrigin(origin)) continue;
    return InvalidArgument(
        "an origin is a scheme and a host, as in https://chat.example.com, "
        "without a path; or null, or *; got ",
        BytesInQuotes(origin));
  }
  AllowedOrigins allowed;
  allowed.is_any_ = std::ranges::find(origins, "*") != origins.end();
  allowed.origins_ = std::move(origins);
  return allowed;
}

bool AllowedOrigins::Allow(std::string_view origin) const {
  if (origin.empty()) return false;
  return is_any_ || std::ranges::any_of(origins_, [&](std::string_view known) {
           return absl::EqualsIgnoreCase(ToAbsl(known), ToAbsl(origin));
         });
}

void AllowedOrigins::AddHeaders(const http::Request& request,
                                std::vector<http::Header>* headers) const {
  if (origins_.empty()) return;
  // Caches must not give one page the answer to another.
  headers->push_back({"Vary", "Origin"});
  const std::string_view origin = request.Find("origin");
  if (!Allow(origin)) return;
  headers->push_back({"Access-Control-Allow-Origin", std::string(origin)});
  headers->push_back(
      {"Access-Control-Expose-Headers",
       "x-request-id, retry-after, x-should-retry, endpoint-load-metrics"});
}

bool AllowedOrigins::IsPreflight(const http::Request& request) const {
  return request.method == "OPTIONS" &&
         !request.Find("access-control-request-method").empty() &&
         Allow(request.Find("origin"));
}

http::Response AllowedOrigins::AnswerPreflight(
    const http::Request& request, std::vector<http::Header> headers) {
  headers.push_back(
      {"Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE"});
  // "*" would leave out Authorization.
  const std::string_view wanted =
      request.Find("access-control-request-headers");
  if (!wanted.empty()) {
    headers.push_back({"Access-Control-Allow-Headers", std::string(wanted)});
  }
  if (request.Find("access-control-request-private-network") == "true") {
    headers.push_back({"Access-Control-Allow-Private-Network", "true"});
  }
  headers.push_back({"Access-Control-Max-Age", "600"});
  return {.status = 204, .content_type = "", .headers = std::move(headers)};
}

}  // namespace espalier::serve
