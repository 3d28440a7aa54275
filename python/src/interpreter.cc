#include "python/src/interpreter.h"

#include <Python.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <string>
#include <thread>

#include "base/status.h"

namespace espalier::python {
namespace nb = nanobind;

namespace {

std::atomic<int> num_forks = 0;
std::atomic<bool> is_exiting = false;
std::thread::id exiting_thread;  // set before is_exiting

}  // namespace

WithoutGil::~WithoutGil() {
  while (is_exiting && std::this_thread::get_id() != exiting_thread) pause();
}

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
    is_done = RunWithoutGil(wait);
    look();
  }
  if (raised != nullptr) std::rethrow_exception(raised);
}

void WatchForks() {
  pthread_atfork(nullptr, nullptr, [] { ++num_forks; });
}

int NumForks() { return num_forks; }

void SetExiting() {
  exiting_thread = std::this_thread::get_id();
  is_exiting = true;
}

void RaiseIfForked(int num_forks_then, std::string_view name) {
  if (num_forks_then == num_forks) return;
  const std::string message =
      Concat("this ", name,
             " was made before a fork, and its threads are not in the child; "
             "make another here, or use the start method \"spawn\"");
  PyErr_SetString(PyExc_RuntimeError, message.c_str());
  throw nb::python_error();
}

}  // namespace espalier::python
