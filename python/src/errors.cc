#include "python/src/errors.h"

#include <Python.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "base/field_error.h"
#include "base/status.h"
#include "espalier/status.h"

namespace espalier::python {

namespace nb = nanobind;

nb::object ExceptionOf(const absl::Status& error) {
  const std::optional<FieldError> parts = FieldErrorOf(error);
  const auto text = [&](const std::string FieldError::*member) -> nb::object {
    if (!parts || (*parts.*member).empty()) return nb::none();
    return nb::cast(*parts.*member);
  };
  const std::string code = absl::StatusCodeToString(error.code());
  return nb::module_::import_("espalier.errors")
      .attr("make_error")(
          nb::str(code.c_str()), nb::str(Message(error).c_str()),
          error.GetPayload(kTooFewPages).has_value(), text(&FieldError::field),
          text(&FieldError::value), text(&FieldError::limit));
}

void Raise(const absl::Status& error) {
  const nb::object exception = ExceptionOf(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())),
                  exception.ptr());
  throw nb::python_error();
}

}  // namespace espalier::python
