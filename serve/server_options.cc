#include "serve/server_options.h"

#include <boost/asio/ip/address.hpp>

#include "base/status.h"

namespace espalier::serve {

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

absl::Status CheckServerOptions(const ServerOptions& options) {
  if (options.num_threads < 0) {
    return InvalidArgument("num_threads must be at least 0, got ",
                           options.num_threads);
  }
  const bool is_open = options.api_keys.empty() && !options.insecure;
  if (is_open && !IsLoopback(options.host)) {
    return InvalidArgument("host ", options.host,
                           " can be reached by others, who may use the server "
                           "without an API key: set one, or say that this is "
                           "meant (insecure)");
  }
  return options.http.Check();
}

}  // namespace espalier::serve
