// Other weights for a generator that runs, as a trainer makes them:
//
//   WeightUpdate update;  // or update.directory
//   update.tensors.push_back(
//       {"model.norm.weight", {"F32", {256}, std::as_bytes(std::span(norm))}});
//   RETURN_IF_ERROR(generator.UpdateWeights(update, {.version = step}));
//
// The new weights are read and packed while requests run with the old ones.
// Then the engine pauses (RunningRequests), takes them, and empties its prefix
// cache, so that no page of older weights is shared. Results say which weights
// they had (Result::weights_version). A draft model keeps its own.
//
// Memory: on the CPU, both weights for the time of the call, and the given
// tensors, as they were given, until others of their names come. On a GPU the
// weights are replaced in place, during the pause.
#pragma once

#include <cstdint>
#include <optional>

#include "model/weight_update.h"
#include "request/running_requests.h"

namespace espalier {

struct UpdateOptions {
  RunningRequests running = RunningRequests::kWait;
  // Result::weights_version of requests that start then, at least 1. Unset: the
  // one after the last.
  std::optional<int64_t> version = {};
};

}  // namespace espalier
