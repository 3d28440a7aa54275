#include "examples/cli/output/draw_note.h"

#include <algorithm>

#include "base/status.h"

namespace espalier::cli {

DrawNote NoteOnDraws(const GenerationParams& params,
                     std::span<const std::string_view> given,
                     const NamedValues& taken,
                     const GenerationDefaults& defaults,
                     std::string_view num_beams,
                     std::string_view num_return_sequences,
                     std::string_view do_sample) {
  if (!params.do_sample) {
    const std::string left =
        SearchNote(defaults, given, params, num_beams, do_sample);
    if (left.empty()) return {};
    return {DrawNoteKind::kSearch, left};
  }
  // best_of says itself that it is of samples.
  if (params.best_of) return {};
  const int64_t beams = defaults.params.num_beams;
  const int64_t n = params.num_return_sequences;
  const std::string by =
      Concat("num_beams is ", beams, " by ", defaults.path, ", ");
  const auto name = &NamedValues::value_type::first;
  if (std::ranges::find(taken, "num_beams", name) != taken.end()) {
    return {DrawNoteKind::kBeams,
            Concat(by, "so beams are drawn; ", num_beams, " 1 draws samples")};
  }
  const bool is_open = std::ranges::find(given, "num_beams") == given.end();
  if (!is_open || beams == 1 || n <= beams) return {};
  return {
      DrawNoteKind::kSamples,
      Concat(by, "fewer than ", num_return_sequences, " ", n,
             ", so samples are drawn; ", num_beams, " ", n, " draws beams")};
}

}  // namespace espalier::cli
