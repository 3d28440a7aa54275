// LineFile: the lines of a file of a store, one after the other, without
// holding the file.
//
// Thread safety: one user.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace espalier::jobs {

// When work on a long file gives way to other work of its thread. A call with
// an end that has passed still gets a little further.
using SliceEnd = std::chrono::steady_clock::time_point;
inline constexpr SliceEnd kNoSliceEnd = SliceEnd::max();

inline bool IsOver(SliceEnd end) {
  return end != kNoSliceEnd && std::chrono::steady_clock::now() >= end;
}

class LineFile {
 public:
  struct Line {
    std::string text;          // without its end, "\n" or "\r\n"
    int64_t num_bytes = 0;     // in the file
    bool has_end = false;      // false: the file ends within it
    bool is_too_long = false;  // `text` is its beginning
  };

  // Errors: kUnavailable with the path and the system's reason.
  static absl::StatusOr<std::unique_ptr<LineFile>> Open(const std::string& path,
                                                        int64_t max_line_bytes);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Nothing at the end of the file or of the slice.
  // Errors: kUnavailable.
  absl::StatusOr<std::optional<Line>> Next(SliceEnd end = kNoSliceEnd);
  bool is_at_end() const { return is_at_end_; }

 private:
  LineFile(int fd, std::string path, int64_t max_line_bytes);
  // False at the end of the file.
  absl::StatusOr<bool> Fill();

  const int fd_;
  const std::string path_;
  const int64_t max_line_bytes_;
  std::string buffer_;
  size_t begin_ = 0;  // first byte not read yet
  Line line_;         // that the last slice ended within
  bool is_at_end_ = false;
};

}  // namespace espalier::jobs
