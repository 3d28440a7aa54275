// Scheduler, part: computes the available room: groups to preempt, room for
// drafts, and requests that fit beside the running ones.
#include <algorithm>
#include <new>
#include <optional>
#include <span>

#include "batcher/scheduler/scheduler.h"

namespace espalier {

int64_t Scheduler::NumPagesNow(const RunningGroup& running,
                               bool decodes) const {
  const SequenceGroup& group = *running.group;
  if (group.prefilling()) {
    return group.is_waiting_for_prefix()
               ? 0
               : group.NumPagesForStep(admission_.max_step_tokens());
  }
  return decodes && group.can_plan() ? group.NumPagesForStep(1) : 0;
}

DraftRoom Scheduler::RoomForDrafts(const Room& taken) {
  bool feeds_prompts = !waiting_.empty() || groups_.FirstPreempted() != nullptr;
  bool verifies = false;
  int num_rows = 0;  // decoding rows, at most
  for (const RunningGroup& running : groups_) {
    const SequenceGroup& group = *running.group;
    feeds_prompts = feeds_prompts || group.prefilling();
    if (!group.prefilling() && group.can_plan()) {
      num_rows += group.max_decode_rows();
    }
    verifies = verifies || group.has_drafts();
  }
  // Share of `count` for beams and drafts.
  const auto share_of = [&](int count) {
    if (!feeds_prompts) return count;
    const double share = 1 - options_.prefill_share;
    return std::min(static_cast<int>(share * count), count - 1);
  };
  const int64_t num_left = pool_.num_available() - taken.num_pages;
  // Pages that groups take in this step are not needed soon. A request that
  // waits for pages of drafts is admitted when these are released.
  const int64_t num_without_drafts =
      num_left + taken.num_prefill_pages + in_flight_.num_draft_pages();
  const int64_t num_for_next =
      NumPagesForNext(num_without_drafts).value_or(0) - taken.num_prefill_pages;
  // Groups request drafts of a draft model together, so that these are verified
  // together: a group that joins in between decodes a token meanwhile.
  return {.num_tokens = share_of(admission_.max_step_tokens()) - num_rows,
          .num_logits = share_of(max_logits_) - num_rows,
          .num_pages = std::max<int64_t>(
              num_left - std::max<int64_t>(num_for_next, 0), 0),
          .may_ask = !verifies,
          .max_draft_context = max_draft_context_,
          .drafts_before_steps = drafts_before_steps_};
}

Scheduler::Room Scheduler::MakeRoom(bool decodes, StepPlan* plan) {
  bool made_room = false;
  const auto preempt = [&](RunningGroup& running) {
    if (running.group->pages().holds_pages()) {
      ++stats_.num_preemptions;
      running.was_preempted = true;
    }
    saved_.push_back(running.group->id());
    running.Preempt({.pool = host_pool_.num_slots() > 0 ? &host_pool_ : nullptr,
                     .min_tokens = saving_policy_.min_tokens()},
                    plan);
    if (!running.group->is_saving()) saved_.pop_back();
    made_room = true;
  };
  int64_t num_needed = 0;
  int64_t num_prefill_pages = 0;
  for (RunningGroup& running : groups_) {
    if (running.is_preempted()) continue;
    if (running.group->prefilling()) MatchPrefix(running, num_needed, plan);
    int64_t num_now = NumPagesNow(running, decodes);
    while (num_needed + num_now > pool_.num_available()) {
      RunningGroup* const last = groups_.LastRunning();
      if (last == &running) num_now = 0;
      preempt(*last);
      if (last == &running) break;
    }
    num_needed += num_now;
    if (running.group->prefilling()) num_prefill_pages += num_now;
  }
  return {num_needed, num_prefill_pages, made_room};
}

void Scheduler::MatchPrefix(RunningGroup& running, int64_t num_promised,
                            StepPlan* plan) {
  changes_groups_ = true;
  const PrefillCounts before = running.group->prefill_counts();
  running.group->MatchPrefix(num_promised, plan);
  const PrefillCounts& after = running.group->prefill_counts();
  // Tokens after a source are not part of its prompt.
  const int64_t num_prompt_tokens = running.group->num_prompt_tokens();
  stats_.num_cached_tokens += std::min(after.num_cached, num_prompt_tokens) -
                              std::min(before.num_cached, num_prompt_tokens);
  stats_.num_tokens_shared_again +=
      after.num_shared_again - before.num_shared_again;
  stats_.num_tokens_loaded_again +=
      after.num_loaded_again - before.num_loaded_again;
}

RunningGroup* Scheduler::NextToResume() {
  RunningGroup* const preempted = groups_.FirstPreempted();
  const bool is_first =
      preempted != nullptr &&
      (waiting_.empty() || preempted->turn < waiting_.front_turn());
  return is_first ? preempted : nullptr;
}

std::optional<int64_t> Scheduler::NumPagesForNext(int64_t num_available) {
  if (const RunningGroup* preempted = NextToResume()) {
    if (preempted->group->has_plan_in_flight()) return std::nullopt;
    return NumPagesFor(preempted->needs, preempted->group->NumPagesToResume(),
                       preempted->group->request(), num_available);
  }
  if (waiting_.empty()) return std::nullopt;
  const WaitingRequest& next = waiting_.front();
  const Request& request = next.prepared.request;
  return NumPagesFor(next.needs, admission_.NumPagesToStart(request), request,
                     num_available);
}

std::optional<int64_t> Scheduler::NumPagesFor(const RequestNeeds& needs,
                                              int64_t num_pages,
                                              const Request& request,
                                              int64_t num_available) {
  const int num_running = groups_.num_running();
  if (num_running == 0) return 0;
  if (!admission_.CanAdmit(needs, groups_.Needs(), num_running)) {
    return std::nullopt;
  }
  num_pages += groups_.NumPagesSoon();
  if (num_pages <= num_available) return num_pages;
  if (!has_shareable_pages_ || !request.params.prefix_cache) {
    return std::nullopt;
  }
  // Pages that it can share need not be taken, and must not be evicted
  // meanwhile.
  const std::span<const TokenId> prompt =
      std::span(request.prompt_tokens).first(NumWithoutLogits(request));
  // Skips the lookup if sharing all of the prompt would not suffice: while
  // pages are short, every step gets here.
  const int64_t num_found = std::ssize(prompt) / pool_.page_size();
  if (num_pages - num_found > num_available) return std::nullopt;
  try {
    const int64_t num_before = pool_.num_available();
    const PrefixMatch match =
        tree_.Find(request.params.cache_salt, {}, {prompt});
    // Idle pages are available until it shares them.
    const int64_t num_idle = num_before - pool_.num_available();
    num_pages -= std::ssize(match.pages) - num_idle;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
  return num_pages <= num_available ? std::optional(num_pages) : std::nullopt;
}

}  // namespace espalier
