// TemplateError: an error of a template or of its evaluation. Thrown only
// within text/jinja/, where any operator of an expression may fail; Template
// (template.h) converts it to a status, so that none leaves this folder.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "base/status.h"

namespace espalier::jinja {

// A place in a template's source; both count from 1, columns in bytes.
struct Position {
  int line = 1;
  int column = 1;
};

class TemplateError : public std::exception {
 public:
  // An error without a position; the evaluator adds it.
  explicit TemplateError(std::string message) : message_(std::move(message)) {}
  TemplateError(Position position, std::string message)
      : message_(std::move(message)), position_(position), is_placed_(true) {}
  // A bound was reached, rather than something being wrong.
  static TemplateError OutOf(std::string message) {
    TemplateError error(std::move(message));
    error.is_bound_ = true;
    return error;
  }

  // Returns this error at `position`.
  TemplateError At(Position position) const {
    TemplateError error = *this;
    error.position_ = position;
    error.is_placed_ = true;
    return error;
  }

  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }
  Position position() const { return position_; }
  bool is_placed() const { return is_placed_; }
  bool is_bound() const { return is_bound_; }

 private:
  std::string message_;
  Position position_;
  bool is_placed_ = false;
  bool is_bound_ = false;
};

// Throws an error whose message is the concatenated arguments.
template <typename... Args>
[[noreturn]] void Fail(const Args&... args) {
  throw TemplateError(Concat(args...));
}

}  // namespace espalier::jinja
