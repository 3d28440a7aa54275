#include "batcher/scheduler/validate_step.h"

#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "pages/validate.h"

namespace espalier {
namespace {

void CheckLaw(const absl::Status& status) {
  CHECK(status.ok()) << status.ToString();
}

void ValidateGroups(const PagePool& pool, const PrefixTree& tree,
                    std::span<const GroupPages* const> groups) {
  std::vector<const PageTable*> all_tables;
  std::vector<const PageRef*> all_tails;
  std::vector<const PageRef*> copied;
  for (const GroupPages* group : groups) {
    const std::vector<const PageTable*> tables = group->Tables();
    const std::vector<const PageRef*> tails = group->Tails();
    CheckLaw(ValidateNumHeld(tables, tails, group->max_pages()));
    all_tables.insert(all_tables.end(), tables.begin(), tables.end());
    all_tails.insert(all_tails.end(), tails.begin(), tails.end());
    if (group->copy_source()) copied.push_back(&group->copy_source());
  }
  CheckLaw(ValidatePages(pool, all_tables, all_tails, tree.Pages(), copied));
}

}  // namespace

void ValidateStep(const PagePool& pool, const HostPool& host,
                  const PrefixTree& tree,
                  std::span<const GroupPages* const> groups,
                  const StepPlan& plan) {
  ValidateGroups(pool, tree, groups);
  std::vector<const HostSlot*> slots;
  for (const GroupPages* group : groups) {
    for (const SavedPages* const saved :
         {&group->saved(), &group->source().saved()}) {
      const std::vector<const HostSlot*> held = saved->Slots();
      slots.insert(slots.end(), held.begin(), held.end());
    }
  }
  CheckLaw(ValidateHostSlots(host, slots));
  CheckLaw(ValidateSwaps(pool, host, plan.page_saves, plan.page_loads,
                         plan.page_copies));
  const std::vector<PageId> filling = tree.FillingPages();
  CheckLaw(ValidateCopies(pool, plan.page_copies, filling));
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    CheckLaw(ValidateWrites(pool, plan.row_pages(i),
                            plan.rows[i].first_position,
                            plan.rows[i].num_tokens, filling));
  }
  for (const PlanSource& source : plan.sources) {
    if (!source.is_read()) continue;
    CheckLaw(ValidateWrites(pool, *source.pages, source.num_stored,
                            source.input->length() - source.num_stored,
                            filling));
  }
  std::vector<PageId> tails;
  for (const GroupContinuation& continuation : plan.continuations) {
    tails.insert(tails.end(), continuation.tail_pages.begin(),
                 continuation.tail_pages.end());
  }
  CheckLaw(ValidateTails(pool, tails));
}

}  // namespace espalier
