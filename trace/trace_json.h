// Traces as files: one JSON object a line, one line an event (docs/trace.md).
// What was written reads back as the same events.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trace/trace.h"

namespace espalier {

// One line, without its end. Texts that are not UTF-8 are written with U+FFFD
// in place of what is malformed; numbers that are not finite, as null, which
// does not read back.
std::string WriteTraceLine(const TraceEvent& event);

// Errors: kInvalidArgument naming the field and what is wrong with it. Unknown
// fields are an error; nothing is ignored.
absl::StatusOr<TraceEvent> ParseTraceLine(std::string_view line);

// A sink that writes lines to a file. The first event cuts what the file had
// before to nothing, so that a run which comes to nothing leaves an older trace
// as it was. For one thread at a time.
class TraceWriter : public TraceSink {
 public:
  // Opens the file at `path`, or makes it.
  // Errors: kFailedPrecondition naming the file and the system's reason.
  static absl::StatusOr<std::unique_ptr<TraceWriter>> Open(
      const std::string& path);
  ~TraceWriter() override;
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // After an error of writing it does nothing more.
  void On(const TraceEvent& event) override;

  // Writes what is buffered and closes the file; events that come later are
  // dropped.
  // Errors: kInternal naming the file and the reason, if anything could not be
  // written.
  absl::Status Close();

 private:
  TraceWriter(FILE* file, std::string path);

  FILE* file_;  // null once closed
  const std::string path_;
  bool is_first_ = true;  // no event came yet
  int error_ = 0;         // of the first write that failed, as errno has it
};

}  // namespace espalier
