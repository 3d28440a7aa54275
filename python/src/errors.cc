#include "python/src/errors.h"

#include <Python.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/field_error.h"
#include "base/status.h"
#include "espalier/status.h"

namespace espalier::python {

namespace nb = nanobind;

namespace {

// Names of files in it may not be UTF-8: they are as os.fsdecode has them.
nb::object MessageOf(const absl::Status& error) {
  const std::string text = Message(error);
  return nb::steal(PyUnicode_DecodeUTF8(
      text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

}  // namespace

nb::object ExceptionOf(const absl::Status& error) {
  const std::optional<FieldError> parts = FieldErrorOf(error);
  const auto text = [&](const std::string FieldError::*member) -> nb::object {
    if (!parts || (*parts.*member).empty()) return nb::none();
    return nb::cast(*parts.*member);
  };
  const std::string code = absl::StatusCodeToString(error.code());
  return nb::module_::import_("espalier.errors")
      .attr("make_error")(nb::str(code.c_str()), MessageOf(error),
                          error.GetPayload(kTooFewPages).has_value(),
                          text(&FieldError::field), text(&FieldError::value),
                          text(&FieldError::limit));
}

absl::Status InWordsOfKeywords(const absl::Status& error) {
  const auto name = [](std::string_view option) -> std::string {
    if (option == "kv_cache_bytes") return "kv_cache_mib";
    if (option == "host_cache_bytes") return "host_cache_mib";
    // A call takes the network of its Transcriber.
    if (option == "vad_model") return "vad_filter";
    return std::string(option);
  };
  return InWordsOf(
      {.option = name, .unit_bytes = int64_t{1} << 20, .unit = "MiB"}, error);
}

void Raise(const absl::Status& error) {
  const nb::object exception = ExceptionOf(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())),
                  exception.ptr());
  throw nb::python_error();
}

}  // namespace espalier::python
