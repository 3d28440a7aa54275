// Traces as files in JSON Lines format, one event per line (docs/trace.md).
// Reading a written trace returns equal events.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trace/trace.h"

namespace espalier {

// Returns the line of an event, without a line break. Malformed UTF-8 is
// replaced by U+FFFD; numbers that are not finite are written as null, which
// ParseTraceLine rejects.
std::string WriteTraceLine(const TraceEvent& event);

// Parses a line. Unknown fields are errors.
// Errors: kInvalidArgument naming the field and the fault.
absl::StatusOr<TraceEvent> ParseTraceLine(std::string_view line);

// A sink that writes lines to a file. The first event truncates the file, so
// that a run without events leaves an older trace unchanged.
//
// Thread safety: one thread at a time.
class TraceWriter : public TraceSink {
 public:
  // Opens or creates the file at `path`. It may be a pipe that has a reader.
  // Errors: kFailedPrecondition naming the file and the system's reason.
  static absl::StatusOr<std::unique_ptr<TraceWriter>> Open(
      const std::string& path);
  ~TraceWriter() override;
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Does nothing after a write error.
  void On(const TraceEvent& event) override;

  // Flushes and closes the file; later events are dropped.
  // Errors: kInternal naming the file and the reason, if a write failed.
  absl::Status Close();

 private:
  TraceWriter(FILE* file, std::string path);

  FILE* file_;  // null once closed
  const std::string path_;
  bool is_first_ = true;  // there was no event yet
  int error_ = 0;         // errno of the first write that failed; 0: none
};

}  // namespace espalier
