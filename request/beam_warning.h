// BeamWarning: the warning about fields of beam search that change nothing:
// those that rank beams with one beam, and groups of beams without a penalty
// that keeps them apart.
//
// Thread safety: a function without state.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "request/generation_params.h"

namespace espalier {

// Returns the warning about the `given` fields that are not at their default,
// such as "length_penalty has no effect with one beam; num_beams 2 or more
// gives it one"; empty if there are none. `name_of` returns the interface's
// name of a field. `params` have the num_beams that the request runs with.
std::string BeamWarning(
    const GenerationParams& params, std::span<const std::string_view> given,
    const std::function<std::string(std::string_view)>& name_of);

}  // namespace espalier
