// Waiting without the interpreter's lock: signals, forks, and the end of the
// process.
#pragma once

#include <functional>

namespace espalier::python {

// Calls `wait`, which blocks for a short time and returns true when it is done,
// without the interpreter's lock until it is, and `interrupt` once if a signal
// raised, such as by Ctrl-C. Between two calls of `wait`, `in_between` runs
// with the lock; it may raise, too.
// Raises what they raised, when `wait` is done.
void WaitInterruptibly(const std::function<bool()>& wait,
                       const std::function<void()>& interrupt,
                       const std::function<void()>& in_between);

// Registers what is to be known at forks.
void WatchForks();
// Raises RuntimeError in a process that was forked from the one that loaded the
// module after it made an engine: threads of the engine are not there.
void RaiseIfForked();
// An engine was made.
void CountEngine();
// True in such a process.
bool IsForked();

// The interpreter ends, on this thread: all others that wait stay where they
// are from now on.
void SetExiting();

}  // namespace espalier::python
