// Output: destination of a command's results: stdout, or a file.
//
// A terminal obeys control characters, and a model may generate any: they would
// colour the screen, retitle the window, or hide earlier output. If the output
// is a terminal, they are therefore escaped (ForTerminal). Files and pipes get
// every byte unchanged.
#pragma once

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier::cli {

// `text` with control characters, tab and line feed aside, as JSON may write
// them (\u001b), so that a JSON text stays the same value; and bytes that are
// no UTF-8 as \xff. Everything else is as it was.
std::string ForTerminal(std::string_view text);

// Returns the beginning of user input in quotes, for an error: as
// ShownInQuotes, or as ForTerminal if it is not UTF-8.
std::string InQuotes(std::string_view typed);
// Returns the beginning as it was typed, without quotes or escapes.
std::string Shortened(std::string_view typed);

// Returns the system's path of the file that a command reads or writes: "-" is
// stdin for an input, and stdout for an output.
std::string InputPath(const std::string& path);
std::string OutputPath(const std::string& path);

// True if both paths name one regular file, even one that does not exist yet.
bool NamesSameFile(const std::string& path, const std::string& other);

// True if both paths lead to one existing regular file. Opening it for writing
// would truncate the input.
bool IsSameFile(const std::string& path, const std::string& other);

// Finds out whether a file can be written at `path`, without making it; its
// directory may be missing. Errors: as Output::Open.
absl::Status CheckWritable(const std::string& path);

// Writes to stderr, where a terminal gets ForTerminal(text).
void PrintToStderr(std::string_view text);
// Writes a line "espalier: note: ..." to stderr.
void PrintNote(std::string_view note);

// Error of requests that end because their answers could not be written.
inline constexpr char kCannotBeWritten[] = "the output cannot be written";

class Output {
 public:
  // Opens the file at `path`, and creates it if it does not exist; "-" is
  // stdout. A file keeps its contents until CutToNothing, because opening
  // another file may fail.
  // Errors: kFailedPrecondition naming the path and the system's reason.
  static absl::StatusOr<std::unique_ptr<Output>> Open(const std::string& path);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Truncates a file. Call it before the first Write(). Does nothing for
  // stdout.
  void CutToNothing();

  // After an error both do nothing. What is written waits for Flush, or until
  // much has come together.
  void Write(std::string_view text);
  void Flush();

  // A wait for a reader ends soon after `fd` has become readable, and for good.
  void set_interrupt_fd(int fd) { interrupt_fd_ = fd; }

  // True if a write has failed.
  bool failed() const { return error_ != 0; }
  // True if it failed because a signal came while the reader took no more data.
  bool interrupted() const { return error_ == EINTR; }
  // Writes the buffered text, and closes a file.
  // Errors: kInternal naming the path and the system's reason, if any write
  // failed.
  absl::Status Close();

  bool is_terminal() const { return is_terminal_; }

 private:
  Output(int fd, std::string name);

  const int fd_;
  bool is_open_ = true;
  const std::string name_;
  const bool is_terminal_;
  const bool is_live_;  // no regular file: a reader may keep it waiting
  int interrupt_fd_ = -1;
  std::string buffer_;  // not written yet
  int error_ = 0;       // errno of the first failure
};

}  // namespace espalier::cli
