// IdleFieldWarnings: warnings about fields of a request that change nothing:
// those that rank beams with one beam, groups of beams without a penalty that
// keeps them apart, filters of draws at temperature 0, and the rule that
// accepts drafts of samples where nothing is sampled.
//
// Thread safety: a function without state.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "request/generation_params.h"

namespace espalier {

// Returns warnings about the `given` fields that are not at their default, such
// as "length_penalty has no effect with one beam; num_beams 2 or more gives it
// one". `name_of` returns the interface's name of a field. `params` are those
// that the request runs with, defaults included.
std::vector<std::string> IdleFieldWarnings(
    const GenerationParams& params, std::span<const std::string_view> given,
    const std::function<std::string(std::string_view)>& name_of);

}  // namespace espalier
