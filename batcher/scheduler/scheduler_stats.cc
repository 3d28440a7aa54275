#include "batcher/scheduler/scheduler_stats.h"

#include <numeric>

namespace espalier {
namespace {

template <size_t n>
constexpr std::array<int64_t, n> Nanoseconds(const double (&seconds)[n]) {
  std::array<int64_t, n> nanoseconds = {};
  for (size_t i = 0; i < n; ++i) {
    nanoseconds[i] = static_cast<int64_t>(seconds[i] * 1e9 + 0.5);
  }
  return nanoseconds;
}

constexpr auto kFirstToken = Nanoseconds(
    {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
     1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0});
constexpr auto kBetweenTokens =
    Nanoseconds({0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
                 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0});
constexpr auto kRequestTime = Nanoseconds(
    {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
     30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0});

}  // namespace

constexpr std::span<const int64_t> kFirstTokenBounds = kFirstToken;
constexpr std::span<const int64_t> kBetweenTokensBounds = kBetweenTokens;
constexpr std::span<const int64_t> kRequestTimeBounds = kRequestTime;

void SchedulerStats::CountEnd(const absl::StatusOr<Result>& result) {
  if (!result.ok()) {
    ++num_failed[static_cast<size_t>(result.status().code())];
    return;
  }
  const FinishReason reason = result->deadline_passed ? FinishReason::kDeadline
                              : result->hypotheses.empty()
                                  ? FinishReason::kLength
                                  : result->hypotheses[0].finish_reason;
  ++num_finished[static_cast<size_t>(reason)];
}

int64_t SchedulerStats::num_ended() const {
  const int64_t num =
      std::accumulate(num_finished.begin(), num_finished.end(), int64_t{0});
  return std::accumulate(num_failed.begin(), num_failed.end(), num);
}

double SchedulerGauges::sharing_ratio() const {
  if (num_pages_held == 0) return 1;
  return static_cast<double>(num_pages_unshared) / num_pages_held;
}

}  // namespace espalier
