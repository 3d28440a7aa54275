#include "examples/cli/options/beam_options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/wording.h"

namespace espalier::cli {

std::string WarningOfBeamOptions(const GenerationParams& params,
                                 std::span<const std::string_view> given,
                                 const OptionNames& names) {
  const auto is_given = [&](std::string_view name) {
    return std::ranges::find(given, name) != given.end();
  };
  if (params.num_beam_groups > 1 && params.diversity_penalty == 0 &&
      is_given("num_beam_groups")) {
    return Concat("without ", names.Of("diversity_penalty"), " all ",
                  params.num_beam_groups, " groups of ",
                  names.Of("num_beam_groups"), " find the same beams");
  }
  if (IsBeamSearch(params)) return "";
  // num_beam_groups and diversity_penalty are refused beside one beam.
  static const GenerationParams kDefault;
  const std::pair<std::string_view, bool> options[] = {
      {"length_penalty", params.length_penalty != kDefault.length_penalty},
      {"length_penalty_form",
       params.length_penalty_form != kDefault.length_penalty_form},
      {"early_stopping", params.early_stopping != kDefault.early_stopping},
      {"patience", params.patience != kDefault.patience},
      {"renormalize_logits",
       params.renormalize_logits != kDefault.renormalize_logits}};
  std::vector<std::string> idle;
  for (const auto& [name, differs] : options) {
    if (differs && is_given(name)) idle.push_back(names.Of(name));
  }
  if (idle.empty()) return "";
  const bool is_one = idle.size() == 1;
  return Concat(JoinWithAnd(idle), is_one ? " has" : " have",
                " no effect with one beam; ", names.Of("num_beams"),
                " 2 or more gives ", is_one ? "it" : "them", " one");
}

}  // namespace espalier::cli
