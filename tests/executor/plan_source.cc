#include "tests/executor/plan_source.h"

#include <utility>

namespace espalier::testing {

void PlanSource::AddRow(std::span<const TokenId> tokens, int first_position,
                        int num_logits, std::span<const PageId> pages) {
  plan.rows.push_back({.sequence = SequenceId{-1},
                       .first_token = static_cast<int>(plan.tokens.size()),
                       .num_tokens = static_cast<int>(tokens.size()),
                       .first_position = first_position,
                       .num_logits = num_logits,
                       .first_logits = plan.num_logits});
  plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
  plan.num_logits += num_logits;
  plan.page_indices.append(pages);
  plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
}

int PlanSource::AddRow(std::span<const TokenId> tokens, int num_logits) {
  std::vector<PageId> pages;
  for (size_t i = 0; i < tokens.size(); i += page_size_) {
    pages.push_back(NewPage());
  }
  AddRow(tokens, 0, num_logits, pages);
  return static_cast<int>(plan.rows.size()) - 1;
}

int PlanSource::AddRow(std::span<const TokenId> source,
                       std::span<const TokenId> tokens, int num_logits) {
  std::vector<PageId> pages;
  for (size_t i = 0; i < source.size(); i += page_size_) {
    pages.push_back(NewPage());
  }
  const int row = AddRow(tokens, num_logits);
  plan.sources.push_back(
      {.first_row = row,
       .input = std::make_shared<const EncoderInput>(
           std::vector<TokenId>(source.begin(), source.end())),
       .pages = std::make_shared<const std::vector<PageId>>(std::move(pages))});
  return row;
}

PlanSelection& PlanSource::AddSelection(
    RequestId request, int num_rows, int num_slots,
    std::shared_ptr<const SelectionParams> params) {
  PlanSelection selection;
  selection.request = request;
  selection.first_logits = plan.num_logits - num_rows;
  selection.num_rows = num_rows;
  selection.num_slots = num_slots;
  selection.params = std::move(params);
  Group& group = groups_[request];
  const size_t first = plan.rows.size() - num_rows;
  for (int rank = 0; rank < num_rows; ++rank) {
    selection.slots.push_back(rank);
    selection.cum_log_probs.push_back(-0.5f * rank);
    const PlanRow& row = plan.rows[first + rank];
    group.position = row.first_position + row.num_tokens - 1;
    const std::span<const PageId> pages = plan.row_pages(first + rank);
    group.pages.emplace_back(pages.begin(), pages.end());
  }
  return plan.selections.push_back(std::move(selection));
}

void PlanSource::Continue(const PlanSelection& selection) {
  Group& group = groups_[selection.request];
  ++group.position;
  ++group.num_steps;
  const bool begins = group.position % page_size_ == 0;
  if (begins || group.tails.empty()) {
    // The first to go on in a page that is begun is slot 0.
    const bool has_tail = !begins;
    group.tails.resize(selection.num_slots);
    for (size_t slot = 0; slot < group.tails.size(); ++slot) {
      group.tails[slot] =
          has_tail && slot == 0 ? group.pages[0].back() : NewPage();
    }
  }
  plan.continuations.push_back(
      {.request = selection.request,
       .position = group.position,
       .tail_pages = group.tails,
       .kind = selection.kind(),
       .num_candidates = selection.num_candidates(),
       .num_generated = selection.num_generated + group.num_steps,
       .params = selection.params});
}

PlanSelection& PlanSource::FeedRows(PlanSelection selection,
                                    std::span<const TokenId> tokens) {
  Group& group = groups_[selection.request];
  ++group.position;
  selection.first_logits = plan.num_logits;
  ++selection.num_generated;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    std::vector<PageId>& pages = group.pages[rank];
    if (group.position % page_size_ == 0) pages.push_back(NewPage());
    AddRow(tokens.subspan(rank, 1), group.position, 1, pages);
  }
  return plan.selections.push_back(std::move(selection));
}

StepPlan PlanSource::Take() { return std::exchange(plan, StepPlan()); }

}  // namespace espalier::testing
