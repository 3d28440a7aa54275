// The addresses of a host, by the system's resolver, which blocks.
//
// Thread safety: functions without state.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier::http {

// True for "localhost", also in capitals or with the dot of the root (RFC 6761,
// section 6.3); not all resolvers support these forms.
bool IsLocalhost(std::string_view host);

// Each once; of a name all that it has, of "" and "0.0.0.0" that of any address
// of this machine. What inet_aton takes is an address, too: 127.1.
// Errors: kNotFound naming the host and what the system says.
absl::StatusOr<std::vector<boost::asio::ip::tcp::endpoint>> Resolve(
    const std::string& host, int port);

}  // namespace espalier::http
