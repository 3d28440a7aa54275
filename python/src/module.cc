// The module espalier._espalier: values in and out. The package around it
// (python/espalier/) has the names that users type.
#include <nanobind/nanobind.h>

#include "python/src/answers.h"
#include "python/src/engine.h"
#include "python/src/interpreter.h"

NB_MODULE(_espalier, module) {
  // Daemon threads keep what they hold at the end of the interpreter.
  nanobind::set_leak_warnings(false);
  espalier::python::WatchForks();
  espalier::python::BindAnswers(module);
  espalier::python::BindEngine(module);
  module.def("set_exiting", espalier::python::SetExiting,
             "The interpreter ends: threads that wait stay where they are.");
}
