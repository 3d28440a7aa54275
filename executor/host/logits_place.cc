#include "executor/host/logits_place.h"

namespace espalier {

ScoreEdits::View EditsAt(const PlanSelection& selection, const ScoreEdits& all,
                         const LogitsPlace& place, int vocab_size,
                         std::vector<TokenEdit>* storage) {
  const int sequence = selection.has_paths()
                           ? selection.as_beams()->paths.ranks[place.row]
                           : place.row;
  ScoreEdits::Row asked = {
      .num_generated = selection.num_generated_of(sequence) + place.depth,
      .vocab_size = vocab_size};
  std::vector<TokenId> with_drafts;
  if (!selection.histories.empty()) asked.tail = selection.histories[sequence];
  if (!selection.histories.empty() && place.depth > 0) {
    with_drafts = selection.histories[sequence];
    const auto draft = selection.drafts()[place.row].begin();
    with_drafts.insert(with_drafts.end(), draft, draft + place.depth);
    asked.tail = with_drafts;
  }
  if (!selection.allowed.empty()) {
    asked.allowed = &selection.allowed[place.logits_row];
  }
  return all.OfRow(asked, storage);
}

}  // namespace espalier
