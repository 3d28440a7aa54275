#include "python/src/interpreter.h"

#include <Python.h>
#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <thread>

namespace espalier::python {
namespace nb = nanobind;

namespace {

std::atomic<bool> has_engine = false;
std::atomic<bool> is_forked = false;
std::atomic<bool> is_exiting = false;
std::thread::id exiting_thread;  // set before is_exiting

}  // namespace

void WaitInterruptibly(const std::function<bool()>& wait,
                       const std::function<void()>& interrupt,
                       const std::function<void()>& in_between) {
  std::exception_ptr raised;
  const auto look = [&] {
    if (raised != nullptr) return;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      in_between();
    } catch (...) {
      raised = std::current_exception();
      interrupt();
    }
  };
  for (bool is_done = false; !is_done;) {
    {
      const nb::gil_scoped_release release;
      is_done = wait();
      // A thread that asks for the lock of an interpreter that ends is ended
      // itself, in the middle of C++.
      while (is_exiting && std::this_thread::get_id() != exiting_thread) {
        pause();
      }
    }
    look();
  }
  if (raised != nullptr) std::rethrow_exception(raised);
}

void WatchForks() {
  pthread_atfork(nullptr, nullptr, [] { is_forked = has_engine.load(); });
}

void CountEngine() { has_engine = true; }
bool IsForked() { return is_forked; }
void SetExiting() {
  exiting_thread = std::this_thread::get_id();
  is_exiting = true;
}

void RaiseIfForked() {
  if (!is_forked) return;
  PyErr_SetString(PyExc_RuntimeError,
                  "the process was forked after espalier made an engine, whose "
                  "threads are not here; make engines in the child, or use the "
                  "start method \"spawn\"");
  throw nb::python_error();
}

}  // namespace espalier::python
