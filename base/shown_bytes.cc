#include "base/shown_bytes.h"

#include "absl/strings/escaping.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {

std::string BytesInQuotes(std::string_view bytes) {
  if (IsUtf8(bytes)) return ShownInQuotes(bytes);
  constexpr size_t kMost = 60;
  const std::string_view shown = bytes.substr(0, kMost);
  return Concat('"', absl::CHexEscape(ToAbsl(shown)),
                shown.size() < bytes.size() ? "..." : "\"");
}

}  // namespace espalier
