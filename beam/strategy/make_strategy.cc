#include "beam/strategy/make_strategy.h"

#include <utility>

#include "beam/strategy/beam_strategy.h"
#include "beam/strategy/diverse_beam_strategy.h"
#include "beam/strategy/sample_strategy.h"
#include "beam/strategy/selection_options.h"
#include "beam/strategy/stochastic_beam_strategy.h"

namespace espalier {
namespace {

template <typename Strategy>
std::unique_ptr<DecodeStrategy> Make(
    const GenerationParams& params,
    std::shared_ptr<const AllowedSequenceTrie> allowed,
    std::shared_ptr<const RequestText> text) {
  return std::make_unique<Strategy>(params, std::move(allowed),
                                    std::move(text));
}

}  // namespace

std::unique_ptr<DecodeStrategy> MakeStrategy(
    const GenerationParams& params,
    std::shared_ptr<const AllowedSequenceTrie> allowed,
    std::shared_ptr<const RequestText> text) {
  const auto make = params.stochastic            ? Make<StochasticBeamStrategy>
                    : !IsBeamSearch(params)      ? Make<SampleStrategy>
                    : params.num_beam_groups > 1 ? Make<DiverseBeamStrategy>
                                                 : Make<BeamStrategy>;
  return make(params, std::move(allowed), std::move(text));
}

}  // namespace espalier
