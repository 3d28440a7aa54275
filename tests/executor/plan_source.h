// Plans without a scheduler, of groups with any kind of selection, including
// those that no strategy uses yet. A group's rows are set once, and it is then
// scheduled asynchronously; plans do not depend on results.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "exec_request/step_plan.h"

namespace espalier::testing {

class PlanSource {
 public:
  explicit PlanSource(int page_size) : page_size_(page_size) {}

  StepPlan plan;

  // Adds a row that feeds `tokens` at the front of its own pages, without a
  // selection; returns its index.
  int AddRow(std::span<const TokenId> tokens, int num_logits);
  // A row of a model with an encoder, which reads `source` on pages before
  // those of `tokens`.
  int AddRow(std::span<const TokenId> source, std::span<const TokenId> tokens,
             int num_logits);
  // Asks for the last logits of the last `num_rows` rows. The caller completes
  // the selection.
  PlanSelection& AddSelection(RequestId request, int num_rows, int num_slots,
                              std::shared_ptr<const SelectionParams> params);
  // The next step of a group that a selection with one row set.
  void Continue(const PlanSelection& selection);
  // The rows of a selection again, each with one of `tokens` after its own.
  PlanSelection& FeedRows(PlanSelection selection,
                          std::span<const TokenId> tokens);

  // The plan, and a new one.
  StepPlan Take();

 private:
  struct Group {
    int position = 0;  // fed last
    int num_steps = 0;
    SmallVector<PageId> tails;
    std::vector<std::vector<PageId>> pages;  // per row
  };
  PageId NewPage() { return PageId{next_page_++}; }
  void AddRow(std::span<const TokenId> tokens, int first_position,
              int num_logits, std::span<const PageId> pages);

  const int page_size_;
  int next_page_ = 0;
  std::map<RequestId, Group> groups_;
};

}  // namespace espalier::testing
