// The status of a run that ended early because a coroutine threw, for lack of
// memory or of another system resource.
#pragma once

#include <exception>

#include "absl/status/status.h"
#include "base/status.h"

namespace espalier::cli {

// Errors: kInternal, with what `error` says.
// REQUIRES: error != nullptr.
inline absl::Status CutShort(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& what) {
    return Internal("the run was cut short: ", what.what());
  } catch (...) {
    return Internal("the run was cut short");
  }
}

}  // namespace espalier::cli
