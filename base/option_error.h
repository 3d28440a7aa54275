// Errors about options, which are not called the same everywhere: what is a
// field of options in C++, kv_cache_bytes, a program calls --kv-cache-mib and
// counts in MiB. An error that is made of such parts can be told in the words
// of either, as its message is in those of C++ and its payload has the parts:
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
// Memory that something takes, "98304 bytes": in larger units rounded up.
struct MemorySize {
  int64_t bytes = 0;
};
// The value of an option that says how much memory there is.
struct MemoryValue {
  int64_t bytes = 0;
};
// What a program says besides: which option helps.
struct OptionHint {
  std::string_view before;
  std::string_view field;
  std::string_view after;
};
std::ostream& operator<<(std::ostream& out, OptionName part);
std::ostream& operator<<(std::ostream& out, MemorySize part);
std::ostream& operator<<(std::ostream& out, MemoryValue part);
std::ostream& operator<<(std::ostream& out, OptionHint part);

// The words of a program.
struct OptionWords {
  std::string (*name)(std::string_view field) = nullptr;
  int64_t unit_bytes = 1;
  std::string_view unit = "bytes";
};

// An error of these parts and others.
absl::Status MakeOptionError(absl::StatusCode code, const std::string& parts);
template <typename... Parts>
absl::Status OptionError(absl::StatusCode code, const Parts&... parts) {
  return MakeOptionError(code, Concat(parts...));
}

// Annotate(status, field), which is told in other words with what it is of.
absl::Status AnnotateOption(const absl::Status& status, std::string_view field);

// The same error in those words; as it is if it is none of options.
absl::Status InWordsOf(const OptionWords& words, const absl::Status& status);

}  // namespace espalier
