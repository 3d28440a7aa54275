// SchedulerStats: what a scheduler (scheduler.h) has done since its
// construction; and SchedulerGauges: what it holds now.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/histogram.h"
#include "request/request.h"
#include "speculate/speculation_figures.h"

namespace espalier {

// Nanoseconds; the buckets are vLLM's.
extern const std::span<const int64_t> kFirstTokenBounds;
extern const std::span<const int64_t> kBetweenTokensBounds;
extern const std::span<const int64_t> kRequestTimeBounds;

// Of a group planned ahead of the answer that ended it, only the step counts.
struct SchedulerStats {
  // Requests: submitted; answered with a result, by the reason for which the
  // best hypothesis finished (FinishReason); answered with an error, by its
  // code (absl::StatusCode), kCancelled and kDeadlineExceeded included.
  int64_t num_requests = 0;
  std::array<int64_t, 4> num_finished = {};
  std::array<int64_t, 17> num_failed = {};

  int64_t num_steps = 0;        // of the model
  int64_t num_draft_steps = 0;  // in which a draft model ran, and nothing else
  // Plans for which the draft model failed: nothing was drafted for them. And
  // why, of the last one.
  int64_t num_draft_failures = 0;
  absl::Status last_draft_failure;
  // Tokens, each in one of these; of a model with an encoder, those of the
  // source, without what lies after it (beam/pages/source_layout.h).
  int64_t num_prompt_tokens = 0;     // fed
  int64_t num_tokens_fed_again = 0;  // by groups that had been preempted
  int64_t num_decode_rows = 0;       // live beams fed, one token each
  int64_t num_draft_tokens_fed = 0;  // beside those of live beams

  // Verified, and accepted of these, counted when the step is answered; as in
  // Usage, for which a token that several paths of beams begin with counts
  // once. `speculation` has them by place; there a search counts once for all
  // of its beams.
  int64_t num_drafted_tokens = 0;
  int64_t num_accepted_tokens = 0;
  SpeculationFigures speculation;
  int64_t num_generated_tokens = 0;  // in the hypotheses returned
  // Of prompts of requests that started: looked up in the prefix tree; and
  // shared instead of fed.
  int64_t num_queried_tokens = 0;
  int64_t num_cached_tokens = 0;

  // Of groups that held pages, and how they had their tokens again: those that
  // are not fed again were found in the prefix tree, or loaded. Counted where
  // that is planned: a group that is preempted again before its plan is out, or
  // whose plan fails, counts twice.
  int64_t num_preemptions = 0;
  int64_t num_resumptions = 0;
  int64_t num_tokens_shared_again = 0;
  int64_t num_tokens_loaded_again = 0;
  // Their pages that went to host memory, and came back.
  int64_t num_swapped_pages_out = 0;
  int64_t num_swapped_pages_in = 0;

  int64_t num_tail_copies = 0;
  int max_tail_copies = 0;  // of one step
  // Pages held by requests, at most and summed over steps; and the same if
  // every beam had pages of its own.
  int64_t peak_pages = 0;
  int64_t peak_unshared_pages = 0;
  int64_t page_steps = 0;
  int64_t unshared_page_steps = 0;
  // What executors reported.
  absl::Duration forward_time;
  absl::Duration select_time;

  // Nanoseconds, of requests that were answered with a result but for the first
  // two, which count tokens as they come: a group's beams have theirs at once.
  Histogram time_to_first_token{kFirstTokenBounds};  // from arrival
  // Time preempted included.
  Histogram time_between_tokens{kBetweenTokensBounds};
  Histogram queue_time{kRequestTimeBounds};    // from arrival to start
  Histogram prefill_time{kRequestTimeBounds};  // from start to first token
  Histogram decode_time{kRequestTimeBounds};   // from first token to end
  Histogram request_time{kRequestTimeBounds};  // from arrival to end

  // Answered, with a result or an error.
  int64_t num_ended() const;
  int64_t num_finished_by(FinishReason reason) const {
    return num_finished[static_cast<size_t>(reason)];
  }
  int64_t num_failed_by(absl::StatusCode code) const {
    return num_failed[static_cast<size_t>(code)];
  }
};

// At one moment (Scheduler::CountNow).
struct SchedulerGauges {
  int num_waiting = 0;
  int num_running = 0;
  int num_preempted = 0;  // they gave their pages back, and will resume
  // Sequences: those that live, or, before a prompt is fed, those that there
  // will be at most; of requests that run, and of those that wait or are
  // preempted.
  int64_t num_rows_running = 0;
  int64_t num_rows_waiting = 0;
  int64_t num_prompt_tokens_waiting = 0;  // of requests that wait

  int page_size = 0;  // in tokens
  int num_pages = 0;  // that there are: free, held or idle
  int num_pages_free = 0;
  int num_pages_held = 0;  // by requests
  int num_pages_idle = 0;  // by the prefix cache alone: taken back when needed
  // That requests would hold if every beam had pages of its own.
  int64_t num_pages_unshared = 0;

  // Unshared pages a page held; 1 if none is.
  double sharing_ratio() const;
};

}  // namespace espalier
