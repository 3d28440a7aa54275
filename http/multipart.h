// MultipartReader: parses a form, multipart/form-data (RFC 7578), as its bytes
// arrive in pieces of any size; the result does not depend on the pieces. The
// content of a file is passed on as it arrives, and is not kept.
//
//   ASSIGN_OR_RETURN(const std::string boundary, BoundaryOf(content_type));
//   MultipartReader reader(boundary, &handler);
//   RETURN_IF_ERROR(reader.Read(bytes));  // any number of times
//   RETURN_IF_ERROR(reader.End());
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier::http {

// The boundary that a header Content-Type of a form names.
// Errors: kInvalidArgument if it is of no form, or has no boundary of 1 to 70
// bytes.
absl::StatusOr<std::string> BoundaryOf(std::string_view content_type);

// Receives the fields of a form. Its first error ends the reading.
class FormHandler {
 public:
  virtual ~FormHandler() = default;

  // A field begins. `filename` is what the client calls a file, and empty of
  // other fields; it may be anything.
  virtual absl::Status BeginField(std::string_view name,
                                  std::string_view filename) = 0;
  // The next bytes of its content, at least one.
  virtual absl::Status AddToField(std::string_view bytes) = 0;
};

class MultipartReader {
 public:
  // Largest headers of a field, with the line end before them.
  static constexpr size_t kMaxHeaderBytes = 8 << 10;
  static constexpr int kMaxFields = 64;

  // `handler` outlives it.
  MultipartReader(std::string_view boundary, FormHandler* handler);

  // Errors: kInvalidArgument naming what is no form; those of the handler.
  absl::Status Read(std::string_view bytes);
  // Errors: kInvalidArgument if the form has not ended.
  absl::Status End() const;

 private:
  enum class State { kBoundary, kHeaders, kContent, kEnd };

  std::string_view rest() const {
    return std::string_view(kept_).substr(begin_);
  }
  absl::Status ReadBoundaryEnd();
  absl::Status ReadHeaders();
  absl::Status ReadContent();

  const std::string delimiter_;  // with the line end before it
  FormHandler* const handler_;
  State state_ = State::kContent;  // the preamble
  bool has_field_ = false;
  int num_fields_ = 0;
  bool needs_more_ = false;  // kept_ ends within a token
  std::string kept_;         // bytes not read yet, from begin_ on
  size_t begin_ = 0;
};

}  // namespace espalier::http
