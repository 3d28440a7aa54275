// espalier verify-speculation: compares results with and without speculation,
// and measures the gain (docs/speculation.md, "Proof").
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "examples/cli/options/runtime_options.h"

namespace espalier::cli {

struct VerifySpeculationOptions {
  RuntimeOptions runtime;
  std::string file;       // requests, as for espalier batch; "-" is stdin
  std::string speculate;  // METHOD[:N[:MODE]]; empty: by the runtime
  int64_t num_samples = 2000;
  int64_t num_rounds = 3;  // that are timed
  int64_t seed = 1;
};

// Runs the subcommand and returns the program's exit code.
// Errors: why it could not run, naming the line of the request if it is one's.
absl::StatusOr<int> VerifySpeculation(const VerifySpeculationOptions& options);

// The end of its help.
extern const char kVerifySpeculationExamples[];

}  // namespace espalier::cli
