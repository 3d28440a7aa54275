#include "request/beam_warning.h"

#include <algorithm>
#include <vector>

#include "base/status.h"
#include "base/wording.h"
#include "request/param_fields.h"

namespace espalier {

std::string BeamWarning(
    const GenerationParams& params, std::span<const std::string_view> given,
    const std::function<std::string(std::string_view)>& name_of) {
  const auto is_given = [&](std::string_view name) {
    return std::ranges::find(given, name) != given.end();
  };
  if (params.num_beam_groups > 1 && params.diversity_penalty == 0 &&
      is_given("num_beam_groups")) {
    return Concat("without ", name_of("diversity_penalty"), " all ",
                  params.num_beam_groups, " groups of ",
                  name_of("num_beam_groups"), " find the same beams");
  }
  if (IsBeamSearch(params)) return "";
  std::vector<std::string> idle;
  for (const ParamField& field : ParamFields()) {
    if (field.Is(kBeamsOnly) && !field.IsDefault(params) &&
        is_given(field.name)) {
      idle.push_back(name_of(field.name));
    }
  }
  if (idle.empty()) return "";
  const bool is_one = idle.size() == 1;
  return Concat(JoinWithAnd(idle), is_one ? " has" : " have",
                " no effect with one beam; ", name_of("num_beams"),
                " 2 or more gives ", is_one ? "it" : "them", " one");
}

}  // namespace espalier
