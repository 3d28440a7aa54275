// The requests of a file that espalier verify-speculation runs, each without
// speculation and with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "request/json/request_json.h"
#include "request/speculation_params.h"

namespace espalier::cli {

class Runtime;

struct SpeculationRequest {
  int64_t line = 0;  // in the file, from 1
  RequestBody without;
  RequestBody with;
  bool by_distribution = false;  // else the two give the same, to the bit
};

struct SpeculationRequests {
  std::string file;  // as errors call it: "stdin" of "-"
  std::vector<SpeculationRequest> requests;  // those that speculate
  std::vector<std::string> left_out;  // "line 3: why", of those that do not

  // `status` with the line that it is of in front.
  absl::Status OnLine(const absl::Status& status, int64_t line) const;
};

// Reads `path`, one request per line; "-" is stdin. A request uses its own
// speculation params, or else `speculate`; both of a pair have the same seed,
// no deadline and no prefix cache.
// Errors: in the file or one of its lines, or if no request speculates.
absl::StatusOr<SpeculationRequests> ReadSpeculationRequests(
    const Runtime& runtime, const SpeculationParams& speculate,
    const std::string& path);

}  // namespace espalier::cli
