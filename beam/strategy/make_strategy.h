// MakeStrategy: the strategy of a request, by its parameters.
#pragma once

#include <cstdint>
#include <memory>

#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/request_text.h"
#include "constrain/constraint.h"
#include "request/generation_params.h"

namespace espalier {

// Returns the strategy of a request:
//   stochastic                      StochasticBeamStrategy
//   num_beams > 1, num_beam_groups  DiverseBeamStrategy
//   num_beams > 1                   BeamStrategy
//   otherwise                       SampleStrategy
// `params` as ValidateParams leaves them; other arguments as for
// StoppingCriteria.
std::unique_ptr<DecodeStrategy> MakeStrategy(
    const GenerationParams& params,
    std::shared_ptr<const Constraint> constraint,
    std::shared_ptr<const RequestText> text);

// Returns the largest number of candidates of any step's selection.
//   constraint  null: none
int64_t MaxNumCandidates(const GenerationParams& params,
                         const Constraint* constraint);

}  // namespace espalier
