// Warning about options of beam search that change nothing: ranking options
// with one beam, and groups of beams without a penalty that keeps them apart.
//
// Thread safety: a function without state.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "examples/cli/options/option_names.h"
#include "request/generation_params.h"

namespace espalier::cli {

// Returns the warning about the `given` options that are not at their default,
// such as "--length-penalty has no effect with one beam; --num-beams 2 or more
// gives it one"; empty if there are none. `params` have the num_beams that the
// request runs with.
std::string WarningOfBeamOptions(const GenerationParams& params,
                                 std::span<const std::string_view> given,
                                 const OptionNames& names);

}  // namespace espalier::cli
