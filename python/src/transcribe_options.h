// Options of a transcription by their names: those of TranscribeOptions, which
// are those of the command and the server (docs/speech.md).
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "espalier/transcriber.h"

namespace espalier::python {

struct GivenTranscribeOptions {
  TranscribeOptions options = {};
  bool vad_filter = false;  // options.voice_activity is the Transcriber's
  // Pairs of an option's name and the other one that it was given by.
  std::vector<std::pair<std::string, std::string>> aliases = {};

  // Returns an error of Transcriber in the words of the caller.
  absl::Status InWordsOfCaller(const absl::Status& error) const;
};

// Reads a dictionary of options. Raises InvalidArgument naming the option that
// is unknown, given twice or of a wrong type, or that needs another.
GivenTranscribeOptions ReadTranscribeOptions(const nanobind::dict& given);

}  // namespace espalier::python
