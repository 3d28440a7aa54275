// What the subcommands' options have in common.
#pragma once

#include <CLI/App.hpp>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "examples/cli/runtime.h"
#include "exec_request/generation_params.h"

namespace espalier::cli {

// Exit codes of the program, as the request format defines them.
enum ExitCode { kAllSucceeded = 0, kSomeFailed = 1, kNothingRan = 2 };

struct CommonOptions {
  RuntimeOptions runtime;
  bool figures = false;  // print the run's figures at the end
};

// Adds the model's and the engine's options to a subcommand.
void AddCommonOptions(CLI::App* command, CommonOptions* options);

// Options --num-beams and so on, one for each field of the request format, as
// texts: they are read as that field's JSON value.
using ParamTexts = std::map<std::string, std::string>;
void AddParamOptions(CLI::App* command, ParamTexts* texts);

// Errors: kInvalidArgument naming the field and the value.
absl::StatusOr<GenerationParams> ReadParams(const ParamTexts& texts);

// Opening a trace cuts its file to nothing, so it must be no other file of the
// command; `option` names that one.
// Errors: kInvalidArgument.
absl::Status CheckTrace(const CommonOptions& options, const std::string& option,
                        const std::string& path);

// Prints "espalier: MESSAGE" on stderr and returns kNothingRan.
int Refuse(const absl::Status& status);

}  // namespace espalier::cli
