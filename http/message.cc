#include "http/message.h"

#include "absl/strings/match.h"
#include "base/status.h"

namespace espalier::http {

std::string_view FindHeader(const std::vector<Header>& headers,
                            std::string_view name) {
  for (const Header& header : headers) {
    if (absl::EqualsIgnoreCase(ToAbsl(header.name), ToAbsl(name))) {
      return header.value;
    }
  }
  return {};
}

}  // namespace espalier::http
