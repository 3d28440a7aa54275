#include "beam/make_strategy.h"

#include <utility>

#include "beam/beam_strategy.h"
#include "beam/diverse_beam_strategy.h"
#include "beam/sample_strategy.h"
#include "beam/selection_options.h"
#include "beam/stochastic_beam_strategy.h"

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
