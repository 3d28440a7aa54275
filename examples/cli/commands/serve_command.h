// espalier serve: a model behind HTTP, until a signal comes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "examples/cli/options/options.h"
#include "serve/server_options.h"

namespace espalier::cli {

struct ServeOptions {
  RuntimeOptions runtime;
  // But for api_keys, speech.voice_activity, allowed_origins, defaults, traces
  // and request_log_fd, which the following make.
  serve::ServerOptions server;
  std::string api_key_file;
  std::vector<std::string> allowed_origins;
  std::string defaults_file;
  std::string vad_model;  // empty: none
  ParamTexts params;      // defaults of requests
  serve::TraceLimits traces;
  bool logs_requests = false;
  absl::Duration drain_timeout = absl::Seconds(30);
};

// The key, where no file has it.
inline constexpr char kApiKeyVariable[] = "ESPALIER_API_KEY";

// Runs the subcommand and returns the program's exit code.
// Errors: why it could not run.
absl::StatusOr<int> RunServe(const ServeOptions& options);

// The end of its help.
extern const char kServeExamples[];

}  // namespace espalier::cli
