// espalier transcribe: files of audio as text with times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/transcriber.h"
#include "examples/cli/options/runtime_options.h"

namespace espalier::cli {

struct TranscribeCommandOptions {
  RuntimeOptions runtime;
  TranscribeOptions transcribe;
  std::vector<std::string> files;  // - is stdin
  // The first temperature, or all of them.
  std::vector<double> temperatures = {0};
  // Unset: no fallback.
  std::optional<double> temperature_increment = 0.2;
  std::string vad_model;              // a file; empty: none
  std::string output_dir;             // empty: stdout
  std::string output_format = "txt";  // or all
  SubtitleOptions subtitles;
  bool verbose = true;  // segments are printed while files are written
  bool figures = false;
};

// Runs the subcommand and returns the program's exit code.
// Errors: why it could not run.
absl::StatusOr<int> RunTranscribe(const TranscribeCommandOptions& options);

// The end of its help.
extern const char kTranscribeExamples[];

}  // namespace espalier::cli
