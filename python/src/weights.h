// Other weights for the model of an engine (espalier/update_weights.h).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>

#include "python/src/engine.h"

namespace espalier::python {

// Returns the version. Raises as Generator::UpdateWeights fails; Ctrl-C ends
// the wait for requests that run.
//   tensors  pairs of a name and an array (__dlpack__) in host memory; empty
//            with a directory
//   running  wait, abort or keep
int64_t UpdateWeights(const Engine& engine, const nanobind::list& tensors,
                      const std::string& directory,
                      std::optional<int64_t> version,
                      const std::string& running, double timeout);

}  // namespace espalier::python
