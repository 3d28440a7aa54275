#include "request/idle_fields.h"

#include <algorithm>

#include "base/status.h"
#include "base/wording.h"
#include "request/param_fields.h"
#include "request/speculation_params.h"

namespace espalier {

std::vector<std::string> IdleFieldWarnings(
    const GenerationParams& params, std::span<const std::string_view> given,
    const std::function<std::string(std::string_view)>& name_of) {
  const auto is_given = [&](std::string_view name) {
    return std::ranges::find(given, name) != given.end();
  };
  const auto given_with = [&](ParamTraits trait) {
    std::vector<std::string> names;
    for (const ParamField& field : ParamFields()) {
      if (field.Is(trait) && !field.IsDefault(params) && is_given(field.name)) {
        names.push_back(name_of(field.name));
      }
    }
    return names;
  };
  std::vector<std::string> warnings;
  if (params.num_beam_groups > 1 && params.diversity_penalty == 0 &&
      is_given("num_beam_groups")) {
    warnings.push_back(Concat("without ", name_of("diversity_penalty"), " all ",
                              params.num_beam_groups, " groups of ",
                              name_of("num_beam_groups"),
                              " find the same beams"));
  }
  if (const auto idle = given_with(kBeamsOnly);
      !idle.empty() && !IsBeamSearch(params)) {
    const bool is_one = idle.size() == 1;
    warnings.push_back(Concat(JoinWithAnd(idle), is_one ? " has" : " have",
                              " no effect with one beam; ",
                              name_of("num_beams"), " 2 or more gives ",
                              is_one ? "it" : "them", " one"));
  }
  // `params` may lack large values, such as a constraint, that are given.
  if (!params.start_after.empty() && is_given("start_after") &&
      !params.constraint && !is_given("constraint")) {
    warnings.push_back(Concat(name_of("start_after"), " has no effect without ",
                              name_of("constraint")));
  }
  if (DrawsAtRandom(params)) return warnings;
  // Filters are errors without do_sample, so draws are greedy here.
  if (const auto idle = given_with(kFilter); !idle.empty()) {
    warnings.push_back(Concat(JoinWithAnd(idle),
                              idle.size() == 1 ? " has" : " have",
                              " no effect with ", name_of("temperature"), " ",
                              params.temperature + 0.0f));  // -0 is 0
  }
  const SpeculationParams speculate =
      params.speculate.value_or(SpeculationParams());
  if (speculate.mode != SpeculationParams().mode && is_given("speculate")) {
    warnings.push_back(Concat("mode ", NameOf(speculate.mode), " of ",
                              name_of("speculate"),
                              " has no effect where nothing is sampled"));
  }
  return warnings;
}

}  // namespace espalier
