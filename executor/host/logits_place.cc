#include "executor/host/logits_place.h"

#include <algorithm>

#include "kernels/logits/edited_logits.h"
#include "kernels/scratch.h"

namespace espalier {
namespace {

RowView WithEdits(const SelectionParams& params, const ScoreEdits::Row& asked,
                  std::span<const float> logits,
                  const ScoreEdits::View& edits) {
  const ScoreProcessors& processors = params.processors;
  LogitEdits all = {.repetition_penalty = processors.repetition_penalty,
                    .edits = edits.edits,
                    .is_allow_list = edits.is_allow_list};
  if (processors.timestamps.has_value()) {
    const auto num_generated =
        std::min<size_t>(asked.num_generated, asked.tail.size());
    all.rule = &*processors.timestamps;
    all.state = TimestampStateOf(*all.rule, asked.tail.last(num_generated));
  }
  const std::span<float> edited(
      Scratch(ScratchUse::kEditedLogits, logits.size()), logits.size());
  WriteEditedLogits(logits, all, edited);
  return {.logits = edited, .edits = {}};
}

}  // namespace

bool RenormalizesDraws(const PlanSelection& selection) {
  return selection.kind() == SelectionKind::kDraws &&
         selection.params->processors.renormalizes;
}

RowView RowAt(const PlanSelection& selection, const ScoreEdits& all,
              const LogitsPlace& place, std::span<const float> logits,
              std::vector<TokenEdit>* storage) {
  const int sequence = selection.has_paths()
                           ? selection.as_beams()->paths.ranks[place.row]
                           : place.row;
  ScoreEdits::Row asked = {
      .num_generated = selection.num_generated_of(sequence) + place.depth,
      .vocab_size = static_cast<int>(logits.size())};
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
  const ScoreEdits::View edits = all.OfRow(asked, storage);
  const bool has_edits = !edits.edits.empty() || edits.is_allow_list;
  if (!selection.params->processors.timestamps.has_value() &&
      !(RenormalizesDraws(selection) && has_edits)) {
    return {.logits = logits, .edits = edits};
  }
  return WithEdits(*selection.params, asked, logits, edits);
}

}  // namespace espalier
