// Runs of `espalier batch` on models/en-fr.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {

// A request that has an answer.
inline constexpr char kGoodLine[] =
    R"({"prompt": "It rains.", "params": {"num_beams": 3, "n": 2}})";

// Runs the lines `input`, with `options` after the model's.
inline ProgramRun RunBatch(const std::string& input,
                           std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"batch", "-m", ModelDirectory("en-fr")});
  return RunEspalier(options, input);
}

}  // namespace espalier::testing
