#include "base/shown_bytes.h"

#include "absl/strings/escaping.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {

std::string BytesInQuotes(std::string_view bytes) {
  if (IsUtf8(bytes)) return ShownInQuotes(bytes);
  return Concat('"', absl::CHexEscape(ToAbsl(bytes)), '"');
}

}  // namespace espalier
