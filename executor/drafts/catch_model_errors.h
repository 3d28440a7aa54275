// CatchModelErrors: calls a model, which may be user code, and converts
// exceptions to errors.
#pragma once

#include <exception>
#include <new>

#include "absl/status/statusor.h"
#include "base/memory.h"
#include "base/status.h"

namespace espalier {

// Returns the result of `run`, or an error if it throws: `no_memory()` for
// std::bad_alloc, kInternal otherwise.
//   name  names the model in errors
template <typename T, typename Run, typename NoMemory>
absl::StatusOr<T> CatchModelErrors(const char* name, const Run& run,
                                   const NoMemory& no_memory) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return UntilThereIsMemory(no_memory);
  } catch (const std::exception& error) {
    return UntilThereIsMemory(
        [&] { return Internal("the ", name, " threw: ", error.what()); });
  } catch (...) {
    return UntilThereIsMemory([&] { return Internal("the ", name, " threw"); });
  }
}

}  // namespace espalier
