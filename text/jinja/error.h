// TemplateError: an error of a template or of its evaluation. Thrown only
// within text/jinja/, where any operator of an expression may fail. Template
// and Inputs (template.h) catch it and return a status instead.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "base/status.h"

namespace espalier::jinja {

// A place in a template's source. Lines and columns count from 1; a column is a
// byte.
struct Position {
  int line = 1;
  int column = 1;
};

class TemplateError : public std::exception {
 public:
  // Makes an error without a position, which the evaluator adds (At).
  explicit TemplateError(std::string message) : message_(std::move(message)) {}
  TemplateError(Position position, std::string message)
      : message_(std::move(message)), position_(position), is_placed_(true) {}
  // Makes an error for an exceeded limit, such as time or memory. Its status is
  // kResourceExhausted; that of other errors is kInvalidArgument.
  static TemplateError OutOf(std::string message) {
    TemplateError error(std::move(message));
    error.exceeds_limit_ = true;
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
  // Meaningful only if is_placed(). Not part of message().
  Position position() const { return position_; }
  bool is_placed() const { return is_placed_; }
  // True if made by OutOf.
  bool exceeds_limit() const { return exceeds_limit_; }

 private:
  std::string message_;
  Position position_;
  bool is_placed_ = false;
  bool exceeds_limit_ = false;
};

// Throws an error whose message is the concatenated arguments.
template <typename... Args>
[[noreturn]] void Fail(const Args&... args) {
  throw TemplateError(Concat(args...));
}

}  // namespace espalier::jinja
