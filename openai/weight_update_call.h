// POST /update_weights_from_disk, as SGLang has it: the weights of another
// directory for the model that is served.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "request/running_requests.h"

namespace espalier::openai {

struct WeightUpdateCall {
  std::string directory;
  RunningRequests running = RunningRequests::kWait;
  std::optional<int64_t> version = {};
};

// {"model_path": DIRECTORY, "weight_version": N, "running": "wait" | "abort" |
// "keep", "abort_all_requests": true | false}; the first is required, and the
// last is another name of "abort".
// Errors: kInvalidArgument naming the byte or the field, and the value.
absl::StatusOr<WeightUpdateCall> ReadWeightUpdateCall(std::string_view body);

}  // namespace espalier::openai
