#include "tests/beam/group_driver.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "pages/validate.h"
#include "tests/beam/search_alone.h"

namespace espalier::testing {

GroupDriver::GroupDriver(const ToyModelOptions& options)
    : model_(options), pool_(options.num_pages, options.page_size) {}

absl::Status GroupDriver::Add(const Request& request, int chunk) {
  ASSIGN_OR_RETURN(
      PageReservation pages,
      pool_.Reserve(BeamGroup::WorstCasePages(request, pool_.page_size())));
  const RequestId id{static_cast<int64_t>(groups_.size())};
  groups_.push_back({std::make_unique<BeamGroup>(id, request, std::move(pages),
                                                 &pool_, &ids_),
                     chunk, absl::OkStatus()});
  return absl::OkStatus();
}

bool GroupDriver::done() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const Entry& entry) { return entry.group->done(); });
}

void GroupDriver::Drop(size_t group_idx) {
  groups_[group_idx].group->Drop(&next_plan_);
}

absl::Status GroupDriver::Step() {
  RETURN_IF_ERROR(Plan());
  last_plan_ = std::exchange(next_plan_, StepPlan());
  std::vector<float> logits(last_plan_.num_logits *
                            model_.description().vocab_size);
  RETURN_IF_ERROR(model_.Forward(last_plan_, logits));
  Select(logits);
  Advance();
  return CheckPages();
}

absl::Status GroupDriver::Finish() {
  while (!done()) RETURN_IF_ERROR(Step());
  RETURN_IF_ERROR(Step());
  if (pool_.num_held() > 0 || pool_.num_reserved() > 0 ||
      model_.num_sequences() > 0) {
    return Internal(pool_.num_held(), " pages held, ", pool_.num_reserved(),
                    " reserved and ", model_.num_sequences(),
                    " sequences known when all is done");
  }
  return absl::OkStatus();
}

absl::Status GroupDriver::Plan() {
  int num_copies = 0;
  for (Entry& entry : groups_) {
    BeamGroup& group = *entry.group;
    if (group.done()) continue;
    const int num_pending = group.num_pending_tokens();
    const bool prefilling = group.prefilling();
    const size_t num_rows = next_plan_.rows.size();
    RETURN_IF_ERROR(group.PlanStep(entry.chunk, &next_plan_));
    const size_t num_new_rows = next_plan_.rows.size() - num_rows;
    if (num_new_rows != (prefilling ? 1 : num_pending)) {
      return Internal(num_new_rows, " rows for ", num_pending, " tokens");
    }
    num_copies += static_cast<int>(num_new_rows) - 1;
  }
  if (next_plan_.page_copies.size() > num_copies) {
    return Internal(next_plan_.page_copies.size(), " tail copies, at most ",
                    num_copies, " are needed");
  }
  RETURN_IF_ERROR(ValidateCopies(pool_, next_plan_.page_copies));
  max_held_ = std::max(max_held_, pool_.num_held());
  return CheckPages();
}

absl::Status GroupDriver::CheckPages() const {
  std::vector<const PageTable*> tables;
  for (const Entry& entry : groups_) {
    for (const PageTable* table : entry.group->Tables()) {
      tables.push_back(table);
    }
  }
  return ValidatePages(pool_, tables);
}

void GroupDriver::Select(std::span<const float> logits) {
  last_result_ = StepResult();
  const int vocab_size = model_.description().vocab_size;
  for (const PlanSelection& selection : last_plan_.selections) {
    std::vector<std::vector<float>> log_probs;
    for (int row = 0; row < selection.num_rows; ++row) {
      const int line = selection.first_logits + row;
      log_probs.push_back(
          LogSoftmax(logits.subspan(line * vocab_size, vocab_size)));
    }
    last_result_.selections.push_back(
        {selection.request, SelectBySort(log_probs, selection.cum_log_probs,
                                         selection.num_candidates)});
  }
}

void GroupDriver::Advance() {
  for (const SelectionResult& selection : last_result_.selections) {
    Entry& entry = groups_[selection.request.value];
    entry.status = entry.group->Advance(selection, &next_plan_);
  }
}

}  // namespace espalier::testing
