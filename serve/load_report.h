// LoadReport: the load of a server, for load balancers: its queue as one number
// (/load, /get_load), and the header endpoint-load-metrics of Open Request Cost
// Aggregation (ORCA), by which Envoy weighs its hosts.
//
// Work is counted in rows, not in requests: a search of 64 beams is 64 rows.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "batcher/engine_stats.h"

namespace espalier::serve {

// The recent load of a server. Envoy divides calls_per_second by utilization to
// get a host's capacity, so both cover the same seconds. The load of the
// present moment would always be zero for a client that sends one call after
// another.
struct RecentLoad {
  double calls_per_second = 0;  // that were answered
  // On average, of all calls from their begin to their end, waiting included.
  double mean_rows = 0;
};

// Monotonic time with an arbitrary epoch; not comparable with absl::Now().
absl::Time SteadyNow();

// Measures it, over the last ten seconds of SteadyNow().
// Thread safety: any thread.
class LoadMeter {
 public:
  void Begin(int64_t rows, absl::Time now);
  // REQUIRES: Begin of as many rows.
  //   answered  false: it was refused, or its client is gone
  void End(int64_t rows, bool answered, absl::Time now);
  RecentLoad Read(absl::Time now) const;

 private:
  static constexpr int kSeconds = 10;
  struct Second {
    int64_t num_calls = 0;
    double row_seconds = 0;
  };
  void MoveTo(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Second& SecondOf(absl::Time time) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable std::mutex mutex_;
  mutable absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::UnixEpoch();
  // By second modulo kSeconds + 1: the present one has not ended.
  mutable Second seconds_[kSeconds + 1] ABSL_GUARDED_BY(mutex_) = {};
  int64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A call while it runs.
class MeteredCall {
 public:
  MeteredCall(LoadMeter* meter, int64_t rows) : meter_(meter), rows_(rows) {
    meter_->Begin(rows_, SteadyNow());
  }
  ~MeteredCall() { meter_->End(rows_, is_answered_, SteadyNow()); }
  MeteredCall(const MeteredCall&) = delete;
  MeteredCall& operator=(const MeteredCall&) = delete;

  void SetAnswered() { is_answered_ = true; }

 private:
  LoadMeter* const meter_;
  const int64_t rows_;
  bool is_answered_ = false;
};

// Rows that run or wait.
int64_t RowsOf(const EngineStats& stats);

// Part of the rows that there may be. Above 1 while rows wait.
double Utilization(const RecentLoad& load, int64_t max_rows);

enum class LoadFormat { kText, kJson };

// By the value of the header endpoint-load-metrics-format: "text" or "json", in
// any case; nothing for another.
std::optional<LoadFormat> ReadLoadFormat(std::string_view value);

// The value of the header endpoint-load-metrics: rps_fractional,
// application_utilization and the named metrics kv_cache_usage_perc,
// num_requests_waiting, num_requests_running and num_rows.
//   max_rows  that may run together
// Source: https://github.com/cncf/xds, xds/data/orca/v3/orca_load_report.proto;
// forms "TEXT k=v, ..." and "JSON {...}" as Envoy reads them.
std::string LoadMetrics(const EngineStats& stats, const RecentLoad& load,
                        int64_t max_rows, LoadFormat format);

}  // namespace espalier::serve
