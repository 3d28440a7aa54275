// AudioInput: the audio of a file or of stdin, which is read twice: what comes
// through a pipe is kept in a temporary file, without a name, meanwhile.
//
// Thread safety: constant after Open.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "speech/audio_reader.h"

namespace espalier::cli {

class AudioInput {
 public:
  // Opens the file at `path`; - is stdin, read to its end or until `stop`.
  // Errors: as MappedFile::Open; kResourceExhausted with the system's reason if
  // there is no room for what stdin has; kCancelled.
  static absl::StatusOr<AudioInput> Open(const std::string& path,
                                         const std::stop_token& stop);

  // Returns a reader at the beginning. This outlives it.
  // Errors: as AudioReader::Open.
  absl::StatusOr<std::unique_ptr<AudioReader>> Read() const;

  // "stdin", or the path.
  const std::string& name() const { return name_; }

 private:
  explicit AudioInput(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::optional<MappedFile> spooled_;  // the bytes of stdin
};

}  // namespace espalier::cli
