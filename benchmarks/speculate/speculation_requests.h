// The requests of a file that verify_speculation runs, each without speculation
// and with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "espalier/generator.h"

namespace espalier::verify_speculation {

struct SpeculationRequest {
  int64_t line = 0;  // in the file, from 1
  GenerationRequest without;
  GenerationRequest with;
  // Samples of mode rejection: equal distributions, not equal tokens.
  bool by_distribution = false;
  int num_sequences = 1;
  bool is_beam_search = false;
};

struct SpeculationRequests {
  std::string file;  // as errors call it: "stdin" of "-"
  std::vector<SpeculationRequest> requests;  // those that speculate
  std::vector<std::string> left_out;  // "line 3: why", of those that do not

  // `status`, which begins with the file and the line.
  absl::Status OnLine(const absl::Status& status, int64_t line) const;
};

// Reads `path`, one request per line; "-" is stdin. A request uses its own
// speculation params, or else `speculate`; both of a pair have the same seed,
// no deadline and no prefix cache. Params that equal those of
// GenerationParams() take the model's defaults, also if a line names them.
// Errors: in the file or one of its lines, or if no request speculates.
absl::StatusOr<SpeculationRequests> ReadSpeculationRequests(
    const Generator& generator, const SpeculationParams& speculate,
    const std::string& path);

}  // namespace espalier::verify_speculation
