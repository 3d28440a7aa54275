// Simulation: a scheduler with its pages, groups and prefix tree, all of them
// real, on a simulated clock and a table model (sim_model.h). A seed decides
// everything (sim_case.h): arrivals, times of steps, cancellations, failing
// steps and wrong results. The same seed gives the same events.
//
// An *event* is a group's part in a step, a submission, a cancellation or an
// answer. After every event the validator of steps runs
// (SchedulerOptions::validate_steps), and these laws are checked:
//
//   - each request is answered once: with what it gives alone in a pool of any
//     size and without drafts (usage.num_cached_tokens apart, and what drafts
//     cost and spare), or with the reason that was planted for it, and then at
//     once; or at its deadline, with the best of the sequences that it has
//     alone after as many steps, or as some, if it speculates;
//   - a row attends to the tokens of its own path alone, and requests of
//     different salts share no page (sim_model.h);
//   - no stall: while there are requests, some plan has rows;
//   - requests are admitted by turn, those of each tenant where there are some;
//   - no starvation: the request whose turn comes first ends after a number of
//     steps that depends on its own size and that of those it may wait for;
//   - what groups that were preempted had in host memory comes back as it was
//     (sim_model.h), and the slots held there are theirs;
//   - in the end no request runs, no host slot is held, and of pages only
//     idle ones of the tree.
//
//   const SimReport report = Simulate(seed, {.num_events = 5000});
//   if (!report.fault.empty()) ...
#pragma once

#include <cstdint>
#include <string>

namespace espalier::testing {

// Counts of events, so that a test can check that there were enough.
struct SimFigures {
  int64_t num_events = 0;
  int64_t num_steps = 0;
  int64_t num_requests = 0;
  int64_t num_results = 0;  // compared with those alone
  int64_t num_cancelled = 0;
  int64_t num_refused = 0;  // that never fit
  int64_t num_failed_steps = 0;
  int64_t num_wrong_answers = 0;
  int64_t num_preemptions = 0;
  int64_t num_cached_tokens = 0;
  int64_t num_accepted_tokens = 0;  // drafted ones
  int64_t num_drafted_ahead = 0;    // groups with rows ahead
  int64_t num_evicted = 0;
  int64_t num_early_results = 0;  // at deadlines, and compared
  int64_t num_too_late = 0;       // at deadlines, without a token
  int64_t num_swapped_out = 0;    // pages
  int64_t num_swapped_in = 0;
  // Steps that a request was the first by turn, in parts of the bound; at most.
  double max_first_share = 0;

  SimFigures& operator+=(const SimFigures& other);
};

struct SimReport {
  std::string fault;  // the law that was broken; empty: none
  uint64_t hash = 0;  // over all events
  SimFigures figures;
};

struct SimOptions {
  // At least this many events; then no request arrives, and the open ones run
  // to their end.
  int64_t num_events = 5000;
};

// Dies where the validator of steps or a CHECK finds the fault.
SimReport Simulate(uint32_t seed, const SimOptions& options);

}  // namespace espalier::testing
