// Options as plain values, and what reading them has in common between the
// commands. What they are called on the command line is in
// examples/cli/command_line.cc.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "examples/cli/options/option_names.h"
#include "examples/cli/options/runtime_options.h"
#include "request/generation_params.h"

namespace espalier::cli {

struct CommonOptions {
  RuntimeOptions runtime;
  bool figures = false;   // print the run's figures at the end
  std::string speculate;  // as typed, a default of requests; empty: off
};

// Values typed for --num-beams and so on, in order, by field of the request
// format. Each text is read as that field's JSON value.
using ParamTexts = std::map<std::string, std::vector<std::string>>;

// A flag's value: true, yes, on or 1; or false, no, off or 0; in any case of
// letters. Nothing if it is none of these.
std::optional<bool> ReadTrueOrFalse(std::string_view text);

// --stop and --bad-words may be given several times, and their values come
// together; any other option once. Where a field may be true or false, any
// spelling of it will do.
// Errors: kInvalidArgument naming the option as `names` has it, and the value.
absl::StatusOr<GenerationParams> ReadParams(const ParamTexts& texts,
                                            const OptionNames& names);

// As ReadParams, but returns an object of the request format.
absl::StatusOr<json::object> ReadParamValues(const ParamTexts& texts,
                                             const OptionNames& names);

// RequestBody::given of these.
std::vector<std::string_view> GivenParams(const ParamTexts& texts);

// Reads the value of --speculate: METHOD[:N[:MODE]], or off.
// Errors: kInvalidArgument naming the option and the value.
absl::StatusOr<SpeculationParams> ReadSpeculate(const std::string& text);

// Checks the output files. The first event of a trace truncates its file, and
// statistics replace theirs by way of a temporary file
// (examples/cli/output/stats_file.h), so neither may be another file of the
// command. `option` names that file, and `path` is the system's path of it.
// Errors: kInvalidArgument.
absl::Status CheckFiles(const CommonOptions& options, const std::string& option,
                        const std::string& path);

// Prints "espalier: MESSAGE" on stderr and returns kNothingRan.
int Refuse(const absl::Status& status);

}  // namespace espalier::cli
