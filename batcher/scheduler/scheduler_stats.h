// SchedulerStats: counters of a scheduler (scheduler.h) since its construction.
// SchedulerGauges: its present state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/histogram.h"
#include "request/request.h"
#include "speculate/speculation_figures.h"

namespace espalier {

// Bucket bounds in nanoseconds; vLLM's.
extern const std::span<const int64_t> kFirstTokenBounds;
extern const std::span<const int64_t> kBetweenTokensBounds;
extern const std::span<const int64_t> kRequestTimeBounds;

// If a group planned a step ahead of the result that ended it, that step
// counts, but not its rows.
struct SchedulerStats {
  // Requests: submitted; ended with a result, by the finish reason of the best
  // hypothesis (FinishReason); ended with an error, by its code
  // (absl::StatusCode), including kCancelled and kDeadlineExceeded.
  int64_t num_requests = 0;
  std::array<int64_t, 4> num_finished = {};
  std::array<int64_t, 17> num_failed = {};

  int64_t num_steps = 0;        // model calls
  int64_t num_draft_steps = 0;  // steps of a draft model alone
  // Plans for which the draft model failed, so that nothing was drafted; and
  // the error of the last one.
  int64_t num_draft_failures = 0;
  absl::Status last_draft_failure;
  int64_t num_list_waits = 0;  // results after which a group awaited lists
  // Tokens, each counted in one of these. With an encoder, prompt tokens are
  // those of the source, without the decoder prompt.
  int64_t num_prompt_tokens = 0;     // fed
  int64_t num_tokens_fed_again = 0;  // by groups that had been preempted
  // Live beams fed, one token each; for a sample with rows ahead (step_plan.h)
  // as planned, though it may have ended.
  int64_t num_decode_rows = 0;
  // Beside those of live beams; as planned, though drafts may end early.
  int64_t num_draft_tokens_fed = 0;

  // Draft tokens that were verified, and accepted ones, counted when the step's
  // result arrives. As in Usage, a token at the start of several paths of beams
  // counts once. `speculation` has them by position; there a search counts once
  // for all of its beams.
  int64_t num_drafted_tokens = 0;
  int64_t num_accepted_tokens = 0;
  SpeculationFigures speculation;
  int64_t num_generated_tokens = 0;  // in the hypotheses returned
  // Prompt tokens of started requests: looked up in the prefix tree; and shared
  // instead of fed.
  int64_t num_queried_tokens = 0;
  int64_t num_cached_tokens = 0;

  // Preemptions of groups with pages, and the recovery of their tokens: tokens
  // that are not fed again were found in the prefix tree or loaded. Counted
  // when planned: a group that is preempted again before its plan is sent, or
  // whose plan fails, counts twice.
  int64_t num_preemptions = 0;
  int64_t num_resumptions = 0;
  int64_t num_tokens_shared_again = 0;
  int64_t num_tokens_loaded_again = 0;
  // Pages saved to host memory, and loaded back.
  int64_t num_swapped_pages_out = 0;
  int64_t num_swapped_pages_in = 0;

  int64_t num_tail_copies = 0;
  int max_tail_copies = 0;  // in one step
  // Pages held by requests: peak, and summed over steps. "unshared": as if
  // every beam had its own pages.
  int64_t peak_pages = 0;
  int64_t peak_unshared_pages = 0;
  int64_t page_steps = 0;
  int64_t unshared_page_steps = 0;
  // Times reported by executors.
  absl::Duration forward_time;
  absl::Duration select_time;
  absl::Duration draft_time;

  // Nanoseconds, for requests that ended with a result. The first two count
  // tokens when they arrive, even for requests that fail; the beams of a group
  // have theirs at once.
  Histogram time_to_first_token{kFirstTokenBounds};  // from arrival
  // Includes time preempted.
  Histogram time_between_tokens{kBetweenTokensBounds};
  Histogram queue_time{kRequestTimeBounds};    // from arrival to start
  Histogram prefill_time{kRequestTimeBounds};  // from start to first token
  Histogram decode_time{kRequestTimeBounds};   // from first token to end
  Histogram request_time{kRequestTimeBounds};  // from arrival to end

  // Counts the end of a request in num_finished or num_failed.
  void CountEnd(const absl::StatusOr<Result>& result);

  // Returns the number of requests that ended, with a result or an error.
  int64_t num_ended() const;
  int64_t num_finished_by(FinishReason reason) const {
    return num_finished[static_cast<size_t>(reason)];
  }
  int64_t num_failed_by(absl::StatusCode code) const {
    return num_failed[static_cast<size_t>(code)];
  }
};

// State at one moment (Scheduler::CountNow).
struct SchedulerGauges {
  int num_waiting = 0;
  int num_running = 0;
  int num_preempted = 0;  // without pages; they will resume
  // Live sequences or, before a prompt is fed, the largest number that it will
  // have; for running requests, and for waiting or preempted ones.
  int64_t num_rows_running = 0;
  int64_t num_rows_waiting = 0;
  int64_t num_prompt_tokens_waiting = 0;  // with decoder prompts

  int page_size = 0;  // in tokens
  int num_pages = 0;  // in total: free, held or idle
  int num_pages_free = 0;
  int num_pages_held = 0;  // by requests
  int num_pages_idle = 0;  // only in the prefix cache; evictable
  // Pages that requests would hold if every beam had its own.
  int64_t num_pages_unshared = 0;

  // Returns unshared pages per held page; 1 if none is held.
  double sharing_ratio() const;
};

}  // namespace espalier
