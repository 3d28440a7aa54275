// Waiting without the GIL: signals, forks, and the end of the process.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <functional>
#include <string_view>

namespace espalier::python {

// Releases the GIL. On a thread other than the one that ends the interpreter
// it is not taken again after that: such a thread would be ended in the middle
// of C++, so it stays where it is.
class WithoutGil {
 public:
  WithoutGil() = default;
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  nanobind::gil_scoped_release release_;
};

// Waits between two looks for signals.
inline constexpr auto kBetweenSignals = std::chrono::milliseconds(100);

// Returns what `call` returns, which runs without the GIL.
template <typename Call>
auto RunWithoutGil(const Call& call) {
  const WithoutGil without_gil;
  return call();
}

// Calls `wait`, which blocks for a short time and returns true when it is done,
// without the GIL until it is, and `interrupt` once if a signal raised, such as
// by Ctrl-C. Between two calls of `wait`, `in_between` runs with the GIL; it
// may raise, too. Raises what they raised, when `wait` is done.
void WaitInterruptibly(const std::function<bool()>& wait,
                       const std::function<void()>& interrupt,
                       const std::function<void()>& in_between);

// Watches forks. Called once.
void WatchForks();
// The forks between the process that loaded the module and this one. Threads
// that were made when it was lower are in another process.
int NumForks();
// Raises RuntimeError if something, of class `name`, was made before a fork.
void RaiseIfForked(int num_forks_then, std::string_view name);

// The interpreter ends, on this thread.
void SetExiting();

}  // namespace espalier::python
