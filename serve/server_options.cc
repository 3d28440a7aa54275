#include "serve/server_options.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

#include "base/field_error.h"
#include "base/status.h"
#include "http/resolve.h"

namespace espalier::serve {

bool IsLoopback(const std::string& host) {
  if (http::IsLocalhost(host)) return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

absl::StatusOr<bool> ReachesOnlyThisMachine(const std::string& host) {
  if (IsLoopback(host)) return true;
  ASSIGN_OR_RETURN(const auto endpoints, http::Resolve(host, /*port=*/0));
  return std::ranges::all_of(endpoints, [](const auto& endpoint) {
    return endpoint.address().is_loopback();
  });
}

absl::Status CheckServerOptions(const ServerOptions& options) {
  if (options.num_threads < 0) {
    return InvalidField(OptionName{"num_threads"}, " must be at least ",
                        Limit(0), Got(options.num_threads));
  }
  if (options.tenant_prefix_bits < 0 || options.tenant_prefix_bits > 128) {
    return InvalidField(OptionName{"tenant_prefix_bits"},
                        " must be in [0, 128]",
                        Got(options.tenant_prefix_bits));
  }
  if (options.speech.max_transcriptions < 1) {
    return InvalidField(OptionName{"max_transcriptions"}, " must be at least ",
                        Limit(1), Got(options.speech.max_transcriptions));
  }
  const bool is_open = options.api_keys.empty() && !options.insecure;
  bool is_safe = !is_open;
  if (is_open) {
    ASSIGN_OR_RETURN(is_safe, ReachesOnlyThisMachine(options.host));
  }
  if (!is_safe) {
    return InvalidField(OptionName{"host"}, " ", options.host,
                        " can be reached by others, who may use the server "
                        "without an API key: set one, or say that this is "
                        "meant (insecure)");
  }
  return options.http.Check();
}

}  // namespace espalier::serve
