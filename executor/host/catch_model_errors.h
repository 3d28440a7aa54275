// CatchModelErrors: calls code of a model, which anybody may have written; what
// it throws is an error.
#pragma once

#include <exception>
#include <new>

#include "absl/status/statusor.h"
#include "base/memory.h"
#include "base/status.h"

namespace espalier {

// What `run` returns; if it throws, an error: `no_memory()` of std::bad_alloc,
// kInternal of anything else.
//   name  of the model, in errors
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
