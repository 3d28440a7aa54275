// Errors of the engine as exceptions of espalier/errors.py.
#pragma once

#include <nanobind/nanobind.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier::python {

// The exception, not raised. REQUIRES: an error, and the GIL.
nanobind::object ExceptionOf(const absl::Status& error);

// Returns an error of options in the words of Python's keywords, where memory
// is in MiB.
absl::Status InWordsOfKeywords(const absl::Status& error);

// Raises it. REQUIRES: as ExceptionOf.
[[noreturn]] void Raise(const absl::Status& error);

inline void RaiseIfError(const absl::Status& status) {
  if (!status.ok()) Raise(status);
}
template <typename T>
T ValueOrRaise(absl::StatusOr<T> value) {
  RaiseIfError(value.status());
  return *std::move(value);
}

}  // namespace espalier::python
