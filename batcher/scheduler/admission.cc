#include "batcher/scheduler/admission.h"

#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/page_count.h"
#include "base/status.h"
#include "beam/sequence_group.h"

namespace espalier {

Admission::Admission(const ModelDescription& model,
                     const SchedulerOptions& options, PagePool* pool,
                     PrefixTree* tree, RunningGroups* groups,
                     TimedStats* counts)
    : limits_(model, options, pool),
      trace_(options.trace.get()),
      pool_(pool),
      tree_(tree),
      groups_(groups),
      counts_(counts) {}

absl::StatusOr<RequestNeeds> Admission::Fit(PreparedRequest* prepared) const {
  limits_.FitDrafts(prepared);
  const RequestNeeds needs = limits_.NeedsOf(*prepared);
  RETURN_IF_ERROR(limits_.CheckFits(*prepared, needs));
  return needs;
}

RunningGroup* Admission::NextToResume() {
  RunningGroup* const preempted = groups_->FirstPreempted();
  const bool is_first =
      preempted != nullptr &&
      (!MayStart() || preempted->turn < waiting_.front_turn());
  return is_first ? preempted : nullptr;
}

std::optional<int64_t> Admission::NumPagesForNext(int64_t num_available) {
  if (const RunningGroup* preempted = NextToResume()) {
    if (preempted->group->has_plan_in_flight()) return std::nullopt;
    const SequenceGroup& group = *preempted->group;
    return NumPagesFor(preempted->needs, group.NumPagesToResume(),
                       group.request(), group.prefix_roots(),
                       group.pages().source().length(), num_available);
  }
  if (!MayStart()) return std::nullopt;
  const WaitingRequest& next = waiting_.front();
  const PreparedRequest& prepared = next.prepared;
  return NumPagesFor(next.needs, limits_.NumPagesToStart(prepared),
                     prepared.request, prepared.roots, prepared.source_length(),
                     num_available);
}

std::optional<int64_t> Admission::NumPagesFor(
    const RequestNeeds& needs, int64_t num_pages, const Request& request,
    const PrefixRoots& roots, int64_t source_length, int64_t num_available) {
  const int num_running = groups_->num_running();
  if (num_running == 0) return 0;
  if (!limits_.CanAdmit(needs, groups_->Needs(), num_running)) {
    return std::nullopt;
  }
  num_pages += groups_->NumPagesSoon();
  if (num_pages <= num_available) return num_pages;
  if (tree_ == nullptr || !request.params.prefix_cache) return std::nullopt;
  // Pages that it can share need not be taken, and must not be evicted
  // meanwhile.
  const std::span<const TokenId> prompt =
      std::span(request.prompt_tokens).first(NumWithoutLogits(request));
  // Skips the lookup if sharing all of the prompt would not suffice: while
  // pages are short, every step gets here.
  const int page_size = pool_->page_size();
  const int64_t num_source_pages = NumPages(source_length, page_size);
  const int64_t num_found = num_source_pages + std::ssize(prompt) / page_size;
  if (num_pages - num_found > num_available) return std::nullopt;
  try {
    const int64_t num_before = pool_->num_available();
    const std::vector<PageRef> found =
        FindCachedPages(roots, num_source_pages, prompt, tree_);
    // Idle pages are available until it shares them.
    const int64_t num_idle = num_before - pool_->num_available();
    num_pages -= std::ssize(found) - num_idle;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
  return num_pages <= num_available ? std::optional(num_pages) : std::nullopt;
}

RunningGroup* Admission::AdmitNext() {
  while (NextFits()) {
    if (RunningGroup* const running = NextToResume()) {
      running->group->Resume();
      if (std::exchange(running->was_preempted, false)) {
        ++counts_->stats.num_resumptions;
      }
      return running;
    }
    RunningGroup* const running = Start(waiting_.TakeFront());
    if (running != nullptr) return running;
  }
  return nullptr;
}

RunningGroup* Admission::Start(WaitingRequest next) {
  Deadlines::Entry deadline = std::move(next.deadline);
  try {
    groups_->ReserveOne();
    auto group = std::make_unique<SequenceGroup>(
        next.turn.id, std::move(next.prepared), pool_, groups_->sequence_ids(),
        tree_, trace_);
    if (group->uses_prefix_tree()) {
      counts_->stats.num_queried_tokens += group->num_prompt_tokens();
    }
    RunningGroup& running =
        groups_->Add({.turn = next.runs_at,
                      .id = next.turn.id,
                      .group = std::move(group),
                      .watcher = std::move(next.watcher),
                      .times = {.arrival = next.arrival, .start = counts_->now},
                      .needs = next.needs,
                      .weights_version = weights_version_,
                      .done = std::move(next.done),
                      .deadline = std::move(deadline)});
    return &running;
  } catch (const std::bad_alloc&) {
    counts_->stats.CountEnd(groups_->out_of_memory());
    next.done(groups_->out_of_memory());
    return nullptr;
  }
}

}  // namespace espalier
