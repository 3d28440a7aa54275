// Takes a model's defaults, in place.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/model_description.h"
#include "request/resolve_defaults.h"

namespace espalier::testing {

// Returns the defaults that `params` have taken.
inline NamedValues TakeDefaults(const GenerationDefaults& defaults,
                                std::span<const std::string_view> given,
                                const ModelDescription& model,
                                int64_t num_prompt_tokens,
                                GenerationParams* params) {
  ResolvedParams resolved =
      ResolveDefaults({.model = &defaults}, std::move(*params), given, model,
                      num_prompt_tokens);
  *params = std::move(resolved.params);
  return std::move(resolved.defaults);
}

}  // namespace espalier::testing
