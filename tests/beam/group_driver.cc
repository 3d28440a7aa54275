#include "tests/beam/group_driver.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/strategy/make_strategy.h"
#include "beam/strategy/selection_options.h"
#include "pages/validate.h"
#include "tests/beam/search_alone.h"

namespace espalier::testing {

GroupDriver::GroupDriver(const ToyModelOptions& options, bool run_ahead)
    : model_(options),
      pool_(options.num_pages, options.page_size),
      run_ahead_(run_ahead),
      resident_(options.page_size) {
  CHECK(!run_ahead || options.memory == ToyModelOptions::Memory::kPages);
}

absl::Status GroupDriver::Add(const Request& request, int chunk,
                              std::shared_ptr<const Constraint> constraint) {
  const RequestId id{static_cast<int64_t>(groups_.size())};
  ModelDescription description = model_.description();
  description.has_token_masks = run_ahead_;
  PreparedRequest prepared(request, nullptr, &description,
                           std::move(constraint));
  const int64_t max_asked =
      MaxNumCandidates(prepared.request.params, prepared.constraint.get());
  const int64_t max_candidates =
      MaxCandidates(prepared, model_.description().vocab_size);
  groups_.push_back(
      {std::make_unique<SequenceGroup>(id, std::move(prepared), &pool_, &ids_),
       chunk, max_asked, max_candidates, absl::OkStatus()});
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
  const bool nobody_runs = next_plan_.empty();
  RETURN_IF_ERROR(Run());
  const size_t num_late = run_ahead_ && !nobody_runs ? 1 : 0;
  return AdvanceUntil(num_late);
}

absl::Status GroupDriver::CatchUp() { return AdvanceUntil(0); }

absl::Status GroupDriver::AdvanceUntil(size_t num_late) {
  while (unanswered_.size() > num_late) {
    RETURN_IF_ERROR(Advance(unanswered_.front()));
    unanswered_.pop_front();
  }
  return CheckPages();
}

absl::Status GroupDriver::Finish() {
  while (!done() || !unanswered_.empty()) RETURN_IF_ERROR(Step());
  RETURN_IF_ERROR(Step());
  if (pool_.num_held() > 0 || model_.num_sequences() > 0 ||
      resident_.num_groups() > 0) {
    return Internal(pool_.num_held(), " pages held, ", model_.num_sequences(),
                    " sequences and ", resident_.num_groups(),
                    " groups known when all is done");
  }
  return absl::OkStatus();
}

absl::Status GroupDriver::Plan() {
  int num_copies = 0;
  for (Entry& entry : groups_) {
    if (!entry.group->can_plan()) continue;
    RETURN_IF_ERROR(PlanGroup(entry, &num_copies));
  }
  if (next_plan_.page_copies.size() > num_copies) {
    return Internal(next_plan_.page_copies.size(), " tail copies, at most ",
                    num_copies, " are needed");
  }
  RETURN_IF_ERROR(ValidateCopies(pool_, next_plan_.page_copies));
  max_held_ = std::max(max_held_, pool_.num_held());
  return CheckPages();
}

absl::Status GroupDriver::PlanGroup(Entry& entry, int* num_copies) {
  SequenceGroup& group = *entry.group;
  const int num_pending = group.num_pending_tokens();
  const bool prefilling = group.prefilling();
  const bool ahead = !prefilling && group.outstanding();
  const size_t num_rows = next_plan_.rows.size();
  const size_t num_continuations = next_plan_.continuations.size();
  RETURN_IF_ERROR(group.PlanStep(entry.chunk, &next_plan_));
  const size_t num_new_rows = next_plan_.rows.size() - num_rows;
  if (num_new_rows != (ahead        ? 0
                       : prefilling ? 1
                                    : num_pending) ||
      next_plan_.continuations.size() != num_continuations + (ahead ? 1 : 0)) {
    return Internal(num_new_rows, " rows for ", num_pending, " tokens");
  }
  *num_copies += std::max(static_cast<int>(num_new_rows) - 1, 0);
  return absl::OkStatus();
}

absl::Status GroupDriver::Run() {
  last_plan_ = std::exchange(next_plan_, StepPlan());
  num_continuations_ += static_cast<int>(last_plan_.continuations.size());
  if (run_ahead_) {
    const size_t num_selections = last_plan_.selections.size();
    resident_.ExpandContinuations(&last_plan_);
    RETURN_IF_ERROR(CheckWrittenOut(last_plan_));
    tables_ahead_.clear();
    for (size_t s = num_selections; s < last_plan_.selections.size(); ++s) {
      const PlanSelection& selection = last_plan_.selections[s];
      Tables& tables = tables_ahead_[selection.request];
      // The rows that continuations are written out as end the plan, and each
      // has one row of logits.
      const size_t num_later_rows =
          last_plan_.num_logits - selection.first_logits;
      const size_t first_row = last_plan_.rows.size() - num_later_rows;
      for (int row = 0; row < selection.num_rows; ++row) {
        const auto pages = last_plan_.row_pages(first_row + row);
        tables.insert({pages.begin(), pages.end()});
      }
    }
  }
  RETURN_IF_ERROR(CheckAsked(last_plan_));
  std::vector<float> logits(last_plan_.num_logits *
                            model_.description().vocab_size);
  RETURN_IF_ERROR(model_.Forward(last_plan_, logits));
  Select(logits);
  if (run_ahead_) resident_.Advance(last_result_);
  unanswered_.push_back(last_result_);
  return absl::OkStatus();
}

absl::Status GroupDriver::CheckWrittenOut(const StepPlan& plan) const {
  RETURN_IF_ERROR(ValidateCopies(pool_, plan.page_copies));
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    RETURN_IF_ERROR(ValidateWrites(pool_, plan.row_pages(row),
                                   plan.rows[row].first_position,
                                   plan.rows[row].num_tokens));
    for (const PageId page : plan.row_pages(row)) {
      if (pool_.ref_count(page) > 0) continue;
      return Internal("row ", row, " has page ", page, ", which is free");
    }
  }
  return absl::OkStatus();
}

absl::Status GroupDriver::CheckAsked(const StepPlan& plan) const {
  for (const PlanSelection& selection : plan.selections) {
    const int64_t most = groups_[selection.request.value].max_asked;
    if (selection.num_candidates() <= most) continue;
    return Internal("a selection of ", selection.num_candidates(),
                    " candidates, at most ", most, " are asked for");
  }
  return absl::OkStatus();
}

absl::Status GroupDriver::CheckPages() const {
  std::vector<const PageTable*> tables;
  std::vector<const PageRef*> tails;
  for (const Entry& entry : groups_) {
    const GroupPages& pages = entry.group->pages();
    const std::vector<const PageTable*> held = pages.Tables();
    const std::vector<const PageRef*> reserved = pages.Tails();
    RETURN_IF_ERROR(ValidateNumHeld(held, reserved, pages.max_pages()));
    tables.insert(tables.end(), held.begin(), held.end());
    tails.insert(tails.end(), reserved.begin(), reserved.end());
  }
  return ValidatePages(pool_, tables, tails);
}

void GroupDriver::Select(std::span<const float> logits) {
  last_result_ = StepResult();
  const int vocab_size = model_.description().vocab_size;
  for (const PlanSelection& selection : last_plan_.selections) {
    std::vector<std::vector<float>> rows;
    for (int row = 0; row < selection.num_rows; ++row) {
      const auto logits_row = logits.subspan(
          (selection.first_logits + row) * vocab_size, vocab_size);
      rows.emplace_back(logits_row.begin(), logits_row.end());
    }
    last_result_.selections.push_back(Answer(selection, std::move(rows)));
  }
}

SelectionResult GroupDriver::Answer(const PlanSelection& selection,
                                    std::vector<std::vector<float>> rows) {
  if (rows.empty()) return {selection.request};
  if (!IsPlain(selection)) return AnswerAsTheEngine(selection, rows);
  for (std::vector<float>& row : rows) row = LogSoftmax(row);
  return {selection.request, AnswerBySort(selection, rows)};
}

absl::Status GroupDriver::Advance(const StepResult& result) {
  for (const SelectionResult& selection : result.selections) {
    Entry& entry = groups_[selection.request.value];
    if (entry.group->done()) continue;  // dropped, or ended a step before
    const int64_t num_candidates = selection.candidates.size();
    if (num_candidates > entry.max_candidates) {
      return Internal(num_candidates, " candidates, more than ",
                      entry.max_candidates);
    }
    entry.status = entry.group->Advance(selection, &next_plan_);
    // The step ahead ran without it.
    if (entry.group->repeats_step()) {
      if (entry.group->outstanding()) ++num_repeated_;
      continue;
    }
    if (entry.group->outstanding() && !entry.group->done()) {
      RETURN_IF_ERROR(CheckTablesAhead(*entry.group));
    }
  }
  return absl::OkStatus();
}

absl::Status GroupDriver::CheckTablesAhead(const SequenceGroup& group) const {
  Tables tables;
  for (const PageTable* table : group.pages().Tables()) {
    std::vector<PageId> pages;
    for (const PageRef& page : table->pages()) pages.push_back(page.id());
    tables.insert(std::move(pages));
  }
  if (tables == tables_ahead_.at(group.id())) return absl::OkStatus();
  return Internal("the tables of request ", group.id(),
                  " are not those its step ran with");
}

}  // namespace espalier::testing
