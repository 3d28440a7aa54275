// The warning of options of beam search that are given beside one beam, where
// they change nothing: the search of width one has nothing to rank.
//
// Thread safety: a function without state.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "examples/cli/options/option_names.h"
#include "request/generation_params.h"

namespace espalier::cli {

// "--length-penalty has no effect with one beam; --num-beams 2 or more gives it
// one", of those `given` options that are not at their default; empty if there
// are none. `params` have the num_beams that the request runs with.
std::string WarningOfBeamOptions(const GenerationParams& params,
                                 std::span<const std::string_view> given,
                                 const OptionNames& names);

}  // namespace espalier::cli
