// RequestTimes: the times of a request's arrival, start and tokens, for the
// histograms of SchedulerStats. A scheduler has no clock: its caller passes the
// time (Scheduler::SetTime), in nanoseconds since any origin.
#pragma once

#include <cstdint>
#include <optional>

#include "batcher/scheduler/scheduler_stats.h"

namespace espalier {

struct RequestTimes {
  std::optional<int64_t> first_token = {};
  int64_t last_token = 0;
  int64_t arrival = 0;
  int64_t start = 0;  // first prefill

  // Records a new token of its group.
  void OnToken(int64_t now, SchedulerStats* stats) {
    if (first_token) {
      stats->time_between_tokens.Add(now - last_token);
    } else {
      first_token = now;
      stats->time_to_first_token.Add(now - arrival);
    }
    last_token = now;
  }

  // Records its end with a result.
  void OnEnd(int64_t now, SchedulerStats* stats) const {
    const int64_t first = first_token.value_or(now);
    stats->queue_time.Add(start - arrival);
    stats->prefill_time.Add(first - start);
    stats->decode_time.Add(now - first);
    stats->request_time.Add(now - arrival);
  }
};

}  // namespace espalier
