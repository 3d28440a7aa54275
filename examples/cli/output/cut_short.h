// What is said of a run that was cut short: a coroutine of it threw, for want
// of memory or of what else the system has.
#pragma once

#include <exception>

#include "absl/status/status.h"
#include "base/status.h"

namespace espalier::cli {

// Errors: kInternal, with what `error` says. REQUIRES: error != nullptr.
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
