#include "serve/load_report.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace espalier::serve {
namespace {

double PagesUsed(const EngineStats& stats) {
  if (stats.num_pages == 0) return 0;
  return static_cast<double>(stats.num_pages_held) / stats.num_pages;
}

}  // namespace

absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

void LoadMeter::Begin(int64_t rows, absl::Time now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  MoveTo(now);
  rows_ += rows;
}

void LoadMeter::End(int64_t rows, bool answered, absl::Time now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  MoveTo(now);
  rows_ -= rows;
  SecondOf(now_).num_calls += answered ? 1 : 0;
}

RecentLoad LoadMeter::Read(absl::Time now) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  MoveTo(now);
  Second sum;
  for (const Second& second : seconds_) {
    sum.num_calls += second.num_calls;
    sum.row_seconds += second.row_seconds;
  }
  const double present = absl::ToDoubleSeconds(
      now_ - absl::FromUnixSeconds(absl::ToUnixSeconds(now_)));
  const double length = kSeconds + present;
  return {static_cast<double>(sum.num_calls) / length,
          sum.row_seconds / length};
}

void LoadMeter::MoveTo(absl::Time now) const {
  if (now <= now_) return;  // another thread was faster
  // Older seconds are forgotten below.
  now_ = std::max(now_, now - absl::Seconds(std::size(seconds_)));
  while (now_ < now) {
    const int64_t second = absl::ToUnixSeconds(now_);
    const absl::Time end = std::min(now, absl::FromUnixSeconds(second + 1));
    SecondOf(now_).row_seconds +=
        static_cast<double>(rows_) * absl::ToDoubleSeconds(end - now_);
    now_ = end;
    if (absl::ToUnixSeconds(end) > second) SecondOf(end) = {};
  }
}

LoadMeter::Second& LoadMeter::SecondOf(absl::Time time) const {
  return seconds_[absl::ToUnixSeconds(time) % std::size(seconds_)];
}

int64_t RowsOf(const EngineStats& stats) {
  return stats.num_rows_running + stats.num_rows_waiting;
}

double Utilization(const RecentLoad& load, int64_t max_rows) {
  return load.mean_rows / static_cast<double>(std::max<int64_t>(max_rows, 1));
}

std::optional<LoadFormat> ReadLoadFormat(std::string_view value) {
  if (absl::EqualsIgnoreCase(ToAbsl(value), "text")) return LoadFormat::kText;
  if (absl::EqualsIgnoreCase(ToAbsl(value), "json")) return LoadFormat::kJson;
  return std::nullopt;
}

std::string LoadMetrics(const EngineStats& stats, const RecentLoad& load,
                        int64_t max_rows, LoadFormat format) {
  using Template = absl::ParsedFormat<'g', 'g', 'g', 'd', 'd', 'd'>;
  static const auto* const text = new Template(
      "TEXT rps_fractional=%.6g, application_utilization=%.6g, "
      "named_metrics.kv_cache_usage_perc=%.6g, "
      "named_metrics.num_requests_waiting=%d, "
      "named_metrics.num_requests_running=%d, "
      "named_metrics.num_rows=%d");
  static const auto* const json = new Template(
      "JSON {\"rps_fractional\": %.6g, "
      "\"application_utilization\": %.6g, "
      "\"named_metrics\": {\"kv_cache_usage_perc\": %.6g, "
      "\"num_requests_waiting\": %d, "
      "\"num_requests_running\": %d, \"num_rows\": %d}}");
  return absl::StrFormat(format == LoadFormat::kText ? *text : *json,
                         load.calls_per_second, Utilization(load, max_rows),
                         PagesUsed(stats),
                         stats.num_waiting + stats.num_preempted,
                         stats.num_running, RowsOf(stats));
}

}  // namespace espalier::serve
