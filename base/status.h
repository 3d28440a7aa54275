// Statuses: every runtime error is an absl::Status whose message names the
// values ("need 7 pages, 3 free") and whose code determines the caller's
// reaction. The helpers below build messages from std types (the packaged
// Abseil has its own string_view) and propagate errors.
//
//   if (n < 1) return InvalidArgument("num_beams must be at least 1, got ", n);
//   RETURN_IF_ERROR(pool.Check());
//   ASSIGN_OR_RETURN(PageRef page, pool.Allocate());
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier {

inline absl::string_view ToAbsl(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}
inline std::string_view ToStd(absl::string_view text) {
  return std::string_view(text.data(), text.size());
}

// Returns the arguments concatenated, each formatted as by a stream. Throws
// std::bad_alloc if memory runs out, where a stream would truncate.
template <typename... Args>
std::string Concat(const Args&... args) {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // passes on what a stream would swallow
  out << std::boolalpha;
  (out << ... << args);
  return std::move(out).str();
}

// Returns an error whose message is the concatenated arguments.
template <typename... Args>
absl::Status MakeError(absl::StatusCode code, const Args&... args) {
  return absl::Status(code, ToAbsl(Concat(args...)));
}
template <typename... Args>
absl::Status InvalidArgument(const Args&... args) {
  return MakeError(absl::StatusCode::kInvalidArgument, args...);
}
template <typename... Args>
absl::Status ResourceExhausted(const Args&... args) {
  return MakeError(absl::StatusCode::kResourceExhausted, args...);
}
template <typename... Args>
absl::Status FailedPrecondition(const Args&... args) {
  return MakeError(absl::StatusCode::kFailedPrecondition, args...);
}
template <typename... Args>
absl::Status Internal(const Args&... args) {
  return MakeError(absl::StatusCode::kInternal, args...);
}
template <typename... Args>
absl::Status NotFound(const Args&... args) {
  return MakeError(absl::StatusCode::kNotFound, args...);
}

// Marks a kResourceExhausted error as permanent: a retry cannot succeed.
// Without the mark it may.
absl::Status MarkPermanent(absl::Status status);
bool IsPermanent(const absl::Status& status);

// Returns the error with another message; it stays permanent if it was.
absl::Status WithMessage(const absl::Status& status, std::string_view message);

// Returns the error with `context` and ": " before its message.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// Returns the code's name in the request format, such as "INVALID_ARGUMENT".
std::string CodeName(absl::StatusCode code);
inline std::string Message(const absl::Status& status) {
  return std::string(ToStd(status.message()));
}

}  // namespace espalier

#define ESPALIER_CONCAT_INNER(a, b) a##b
#define ESPALIER_CONCAT(a, b) ESPALIER_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                           \
  do {                                                  \
    if (absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                   \
    }                                                   \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) \
  ESPALIER_ASSIGN_OR_RETURN(ESPALIER_CONCAT(status_or_, __LINE__), lhs, expr)
#define ESPALIER_ASSIGN_OR_RETURN(result, lhs, expr) \
  auto result = (expr);                              \
  if (!result.ok()) return result.status();          \
  lhs = *std::move(result)
