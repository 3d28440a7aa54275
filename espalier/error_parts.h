// Errors for users of the library, who see no parts of them
// (base/field_error.h).
#pragma once

#include "absl/status/status.h"

namespace espalier {

// Returns the error without its parts: ToString() would print them.
inline absl::Status WithoutErrorParts(absl::Status error) {
  error.ErasePayload("espalier/field_error");
  return error;
}

}  // namespace espalier
