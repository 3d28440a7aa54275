#include "beam/strategy/make_strategy.h"

#include <utility>

#include "beam/strategy/beam_strategy.h"
#include "beam/strategy/diverse_beam_strategy.h"
#include "beam/strategy/sample_strategy.h"
#include "beam/strategy/selection_options.h"
#include "beam/strategy/stochastic_beam_strategy.h"

namespace espalier {
namespace {

// Functions of a strategy class.
struct StrategyClass {
  std::unique_ptr<DecodeStrategy> (*make)(
      const GenerationParams& params,
      std::shared_ptr<const Constraint> constraint,
      std::shared_ptr<const RequestText> text);
  int64_t (*max_num_candidates)(const GenerationParams& params,
                                const Constraint* constraint);
};

template <typename Strategy>
std::unique_ptr<DecodeStrategy> Make(
    const GenerationParams& params,
    std::shared_ptr<const Constraint> constraint,
    std::shared_ptr<const RequestText> text) {
  return std::make_unique<Strategy>(params, std::move(constraint),
                                    std::move(text));
}

template <typename Strategy>
constexpr StrategyClass kClass = {Make<Strategy>, Strategy::MaxNumCandidates};

const StrategyClass& ClassOf(const GenerationParams& params) {
  return params.stochastic            ? kClass<StochasticBeamStrategy>
         : !IsBeamSearch(params)      ? kClass<SampleStrategy>
         : params.num_beam_groups > 1 ? kClass<DiverseBeamStrategy>
                                      : kClass<BeamStrategy>;
}

}  // namespace

std::unique_ptr<DecodeStrategy> MakeStrategy(
    const GenerationParams& params,
    std::shared_ptr<const Constraint> constraint,
    std::shared_ptr<const RequestText> text) {
  return ClassOf(params).make(params, std::move(constraint), std::move(text));
}

int64_t MaxNumCandidates(const GenerationParams& params,
                         const Constraint* constraint) {
  return ClassOf(params).max_num_candidates(params, constraint);
}

}  // namespace espalier
