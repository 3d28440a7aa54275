#include "executor/drafts/fill_drafts.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"
#include "exec_request/plan_drafts.h"

namespace espalier {
namespace {

void CutAtEnd(const PlanSelection& selection, DraftedTokens* draft) {
  const size_t count = LengthToEnd(draft->tokens, selection.eos_token_ids,
                                   NeedsDraftLogits(*selection.params));
  if (count == draft->tokens.size()) return;
  if (!draft->logits.empty()) {
    const size_t vocab_size = draft->logits.size() / draft->tokens.size();
    draft->logits = draft->logits.First(count * vocab_size);
  }
  draft->tokens.resize(count);
}

void FillSelections(std::span<DraftedTokens> drafts, StepPlan* plan) {
  for (size_t i = 0; i < drafts.size(); ++i) {
    const DraftTarget& target = plan->drafting[i].verified_by;
    if (target.plan_row < 0) continue;
    PlanSelection& selection = plan->selections.Edit(target.selection);
    SampleDrafts& verified = selection.EditDraws().drafts;
    if (drafts[i].pending.empty()) {
      CutAtEnd(selection, &drafts[i]);
    } else {
      drafts[i].pending.EndAt(selection.eos_token_ids,
                              NeedsDraftLogits(*selection.params));
      verified.pending.resize(selection.num_rows);
      verified.pending[target.rank] = drafts[i].pending;
    }
    std::vector<TokenId>& draft = verified.tokens[target.rank];
    CHECK_LE(drafts[i].tokens.size(), draft.size()) << "drafted tokens";
    draft = drafts[i].tokens;
    if (!NeedsDraftLogits(*selection.params)) continue;
    verified.logits.resize(selection.num_rows);
    verified.logits[target.rank] = drafts[i].logits;
  }
  // If logits of one draft are missing, all drafts of its request are verified
  // as drafts that were not sampled.
  for (size_t i = 0; i < plan->selections.size(); ++i) {
    const DrawSelection* const draws = plan->selections[i].as_draws();
    if (draws == nullptr || draws->drafts.logits.empty()) continue;
    const SampleDrafts& verified = draws->drafts;
    bool has_drafts = false;
    bool has_all_logits = true;
    for (size_t row = 0; row < verified.logits.size(); ++row) {
      if (verified.tokens[row].empty()) continue;
      has_drafts = true;
      has_all_logits = has_all_logits && !verified.logits[row].empty();
    }
    if (!has_drafts || !has_all_logits) {
      plan->selections.Edit(i).EditDraws().drafts.logits.clear();
    }
  }
}

// Rewrites the plan's arrays of rows.
class RowWriter {
 public:
  RowWriter(int page_size, StepPlan* plan)
      : page_size_(page_size), plan_(*plan), removed_(1, 0) {}

  // Adds a planned row, unchanged or with `draft` after its first token. The
  // row may start up to `num_ahead` positions later than planned.
  void Add(size_t row_idx, const std::vector<TokenId>* draft, int num_ahead) {
    PlanRow& row = plan_.rows[row_idx];
    const int num_planned = row.num_tokens;
    const auto planned = plan_.row_tokens(row);
    const auto kept = planned.first(draft == nullptr ? planned.size() : 1);
    const int first_token = static_cast<int>(tokens_.size());
    tokens_.insert(tokens_.end(), kept.begin(), kept.end());
    size_t num_pages = plan_.row_pages(row_idx).size();
    if (draft != nullptr) {
      tokens_.insert(tokens_.end(), draft->begin(), draft->end());
      row.num_tokens = 1 + static_cast<int>(draft->size());
      row.num_logits = row.num_tokens;
      const int num_positions = row.first_position + num_ahead + row.num_tokens;
      num_pages = (num_positions + page_size_ - 1) / page_size_;
    }
    const auto pages = plan_.row_pages(row_idx).first(num_pages);
    page_indices_.append(pages);
    page_indptr_.push_back(static_cast<int>(page_indices_.size()));
    first_logits_.push_back(row.first_logits);
    row.first_token = first_token;
    row.first_logits -= removed_.back();
    removed_.push_back(removed_.back() + num_planned - row.num_tokens);
  }

  // Removes a planned row.
  void Remove(size_t row_idx) {
    PlanRow& row = plan_.rows[row_idx];
    first_logits_.push_back(row.first_logits);
    removed_.push_back(removed_.back() + row.num_logits);
    row.num_tokens = 0;
  }

  void Finish() {
    std::erase_if(plan_.rows,
                  [](const PlanRow& row) { return row.num_tokens == 0; });
    for (size_t i = 0; i < plan_.selections.size(); ++i) {
      const int num_removed = RemovedBefore(plan_.selections[i].first_logits);
      if (num_removed == 0) continue;
      plan_.selections.Edit(i).first_logits -= num_removed;
    }
    for (PlanPromptLogprobs& scoring : plan_.scorings) {
      scoring.first_logits -= RemovedBefore(scoring.first_logits);
    }
    plan_.num_logits -= removed_.back();
    plan_.tokens = std::move(tokens_);
    plan_.page_indices = std::move(page_indices_);
    plan_.page_indptr = std::move(page_indptr_);
  }

 private:
  // Returns the rows of logits removed before planned row `first_logits`.
  int RemovedBefore(int first_logits) const {
    return removed_[std::ranges::lower_bound(first_logits_, first_logits) -
                    first_logits_.begin()];
  }

  const int page_size_;
  StepPlan& plan_;
  std::vector<TokenId> tokens_;
  std::vector<int> page_indptr_ = {0};
  SmallVector<PageId> page_indices_;
  std::vector<int> first_logits_;  // as planned, by row
  std::vector<int> removed_;       // rows of logits, before each row
};

}  // namespace

void FillDrafts(int page_size, std::span<DraftedTokens> drafts, StepPlan* plan,
                std::span<const int> ended_rows) {
  FillSelections(drafts, plan);
  std::vector<const std::vector<TokenId>*> by_row(plan->rows.size());
  std::vector<int> num_ahead(plan->rows.size());
  for (size_t i = 0; i < drafts.size(); ++i) {
    const int row = plan->drafting[i].verified_by.plan_row;
    if (row < 0) continue;
    by_row[row] = &drafts[i].tokens;
    num_ahead[row] = plan->drafting[i].verified_before.num_tokens();
  }
  std::vector<bool> is_ended(plan->rows.size());
  for (const int row : ended_rows) is_ended[row] = true;
  RowWriter writer(page_size, plan);
  for (size_t row = 0; row < by_row.size(); ++row) {
    if (is_ended[row]) {
      writer.Remove(row);
    } else {
      writer.Add(row, by_row[row], num_ahead[row]);
    }
  }
  writer.Finish();
  if (ended_rows.empty()) return;
  plan->selections.EraseIf(
      [](const PlanSelection& selection) { return selection.num_rows == 0; });
}

}  // namespace espalier
