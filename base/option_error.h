// Errors about options, which have different names in different interfaces: the
// C++ field kv_cache_bytes is --kv-cache-mib on the command line, in MiB. The
// message of such an error uses the C++ names; its payload has the parts, from
// which InWordsOf() builds the message of another interface:
//
//   return OptionError(absl::StatusCode::kInvalidArgument,
//                      OptionName{"kv_cache_bytes"}, " must hold a page of ",
//                      MemorySize{n}, ", got ", MemoryValue{given});
//
//   kv_cache_bytes must hold a page of 98304 bytes, got 1000
//   InWordsOf(words, error)  ->  --kv-cache-mib must hold a page of 1 MiB, ...
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"

namespace espalier {

// Parts of a message. A field is one of an options struct.
struct OptionName {
  std::string_view field;
};
// Memory that is needed, "98304 bytes"; rounded up in larger units.
struct MemorySize {
  int64_t bytes = 0;
};
// The value of an option that sets a memory size; rounded down.
struct MemoryValue {
  int64_t bytes = 0;
};
// A hint, shown only by InWordsOf(): the option that helps.
struct OptionHint {
  std::string_view before;
  std::string_view field;
  std::string_view after;
};
std::ostream& operator<<(std::ostream& out, OptionName part);
std::ostream& operator<<(std::ostream& out, MemorySize part);
std::ostream& operator<<(std::ostream& out, MemoryValue part);
std::ostream& operator<<(std::ostream& out, OptionHint part);

// Names and units of an interface.
struct OptionWords {
  std::string (*name)(std::string_view field) = nullptr;
  int64_t unit_bytes = 1;
  std::string_view unit = "bytes";
};

// Returns an error whose message consists of these parts and other text.
absl::Status MakeOptionError(absl::StatusCode code, const std::string& parts);
template <typename... Parts>
absl::Status OptionError(absl::StatusCode code, const Parts&... parts) {
  return MakeOptionError(code, Concat(parts...));
}

// Returns Annotate(status, field), with `field` as an option name.
absl::Status AnnotateOption(const absl::Status& status, std::string_view field);

// Returns the error in the given words; unchanged if it has no option parts.
absl::Status InWordsOf(const OptionWords& words, const absl::Status& status);

}  // namespace espalier
