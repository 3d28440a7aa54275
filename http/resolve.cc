#include "http/resolve.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>

#include "absl/strings/match.h"
#include "base/field_error.h"
#include "base/status.h"

namespace espalier::http {

namespace asio = boost::asio;

bool IsLocalhost(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  return absl::EqualsIgnoreCase(ToAbsl(host), "localhost");
}

absl::StatusOr<std::vector<asio::ip::tcp::endpoint>> Resolve(
    const std::string& host, int port) {
  boost::system::error_code error;
  asio::io_context context;
  asio::ip::tcp::resolver resolver(context);
  const auto results = resolver.resolve(
      IsLocalhost(host) ? "localhost" : host, std::to_string(port),
      asio::ip::tcp::resolver::numeric_service |
          asio::ip::tcp::resolver::passive,
      error);
  if (error) {
    return MakeFieldError(absl::StatusCode::kNotFound, OptionName{"host"},
                          " \"", host, "\" has no address: ", error.message());
  }
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (const auto& result : results) {
    const auto known = std::ranges::find(endpoints, result.endpoint());
    if (known == endpoints.end()) endpoints.push_back(result.endpoint());
  }
  return endpoints;
}

}  // namespace espalier::http
