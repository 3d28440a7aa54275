// What the subcommands' options have in common.
#pragma once

#include <CLI/App.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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
// texts, in the order given: they are read as that field's JSON value.
using ParamTexts = std::map<std::string, std::vector<std::string>>;
void AddParamOptions(CLI::App* command, ParamTexts* texts);

// "num_beams" is --num-beams; a name of one letter is -n.
std::string Flag(std::string_view name);

// --stop may be given several times, and its values come together; any other
// option once.
// Errors: kInvalidArgument naming the option or field, and the value.
absl::StatusOr<GenerationParams> ReadParams(const ParamTexts& texts);

// Lets no option of `command` have an empty value, as `--trace "$FILE"` gives
// it where FILE is not set: it would pass for an option that was left out.
// Several values at once, the texts to run, are left alone: each gets its own
// answer.
void RefuseEmptyValues(CLI::App* command);

// Opening a trace cuts its file to nothing, so it must be no other file of the
// command; `option` names that one.
// Errors: kInvalidArgument.
absl::Status CheckTrace(const CommonOptions& options, const std::string& option,
                        const std::string& path);

// Prints "espalier: MESSAGE" on stderr and returns kNothingRan.
int Refuse(const absl::Status& status);

}  // namespace espalier::cli
