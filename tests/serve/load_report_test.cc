#include "serve/load_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier::serve {
namespace {

EngineStats HalfFull() {
  EngineStats stats;
  stats.num_waiting = 2;
  stats.num_preempted = 1;
  stats.num_running = 4;
  stats.num_rows_running = 70;
  stats.num_rows_waiting = 10;
  stats.num_pages = 200;
  stats.num_pages_held = 100;
  stats.num_pages_idle = 60;
  return stats;
}

TEST(LoadReportTest, WorkIsCountedInRows) {
  EXPECT_EQ(RowsOf(HalfFull()), 80);
  EXPECT_EQ(RowsOf(EngineStats()), 0);
}

TEST(LoadReportTest, UtilizationIsOfTheRowsThatThereMayBe) {
  EXPECT_DOUBLE_EQ(Utilization({12.5, 80}, 100), 0.8);
  EXPECT_DOUBLE_EQ(Utilization({12.5, 80}, 40), 2);  // rows wait
  EXPECT_DOUBLE_EQ(Utilization({}, 100), 0);
}

TEST(LoadReportTest, ItIsWrittenInTheTwoFormsThatRoutersRead) {
  EXPECT_EQ(LoadMetrics(HalfFull(), {12.5, 80}, 100, LoadFormat::kText),
            "TEXT rps_fractional=12.5, application_utilization=0.8, "
            "named_metrics.kv_cache_usage_perc=0.5, "
            "named_metrics.num_requests_waiting=3, "
            "named_metrics.num_requests_running=4, named_metrics.num_rows=80");
  EXPECT_EQ(LoadMetrics(HalfFull(), {12.5, 80}, 100, LoadFormat::kJson),
            "JSON {\"rps_fractional\": 12.5, \"application_utilization\": "
            "0.8, \"named_metrics\": {\"kv_cache_usage_perc\": 0.5, "
            "\"num_requests_waiting\": 3, \"num_requests_running\": 4, "
            "\"num_rows\": 80}}");
}

TEST(LoadReportTest, TheFormIsAskedForByName) {
  EXPECT_EQ(ReadLoadFormat("text"), LoadFormat::kText);
  EXPECT_EQ(ReadLoadFormat("JSON"), LoadFormat::kJson);
  EXPECT_EQ(ReadLoadFormat("bin"), std::nullopt);
  EXPECT_EQ(ReadLoadFormat(""), std::nullopt);
}

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

// Calls that take no time.
void Answer(int count, absl::Time now, LoadMeter* meter) {
  for (int i = 0; i < count; ++i) {
    meter->Begin(1, now);
    meter->End(1, true, now);
  }
}

TEST(LoadMeterTest, CallsAreThoseOfTheLastTenSeconds) {
  LoadMeter meter;
  EXPECT_EQ(meter.Read(kStart).calls_per_second, 0);
  Answer(100, kStart, &meter);
  EXPECT_DOUBLE_EQ(meter.Read(kStart + absl::Seconds(10)).calls_per_second, 10);
  EXPECT_EQ(meter.Read(kStart + absl::Seconds(11)).calls_per_second, 0);
}

TEST(LoadMeterTest, SecondsWithoutACallCount) {
  LoadMeter meter;
  for (int second = 0; second < 40; ++second) {
    Answer(second % 2 == 0 ? 8 : 0, kStart + absl::Seconds(second), &meter);
  }
  // Seconds 30 to 39, of which five had 8.
  EXPECT_DOUBLE_EQ(meter.Read(kStart + absl::Seconds(40)).calls_per_second, 4);
  EXPECT_EQ(meter.Read(kStart + absl::Hours(1)).calls_per_second, 0);
}

TEST(LoadMeterTest, AClockThatIsSetBackDoesNotLoseCalls) {
  LoadMeter meter;
  Answer(10, kStart, &meter);
  Answer(10, kStart - absl::Hours(1), &meter);
  EXPECT_DOUBLE_EQ(meter.Read(kStart + absl::Seconds(10)).calls_per_second, 2);
}

TEST(LoadMeterTest, ACallThatIsRefusedIsNotOneAnswered) {
  LoadMeter meter;
  meter.Begin(4, kStart);
  meter.End(4, false, kStart + absl::Seconds(1));
  const RecentLoad load = meter.Read(kStart + absl::Seconds(10));
  EXPECT_EQ(load.calls_per_second, 0);
  EXPECT_DOUBLE_EQ(load.mean_rows, 0.4);
}

TEST(LoadMeterTest, RowsAreTheirMeanOverTheTimeTheyRan) {
  LoadMeter meter;
  meter.Begin(64, kStart + absl::Milliseconds(500));
  meter.Begin(8, kStart + absl::Seconds(2));
  meter.End(8, true, kStart + absl::Milliseconds(4500));
  // 64 for 9.5 s, 8 for 2.5 s.
  EXPECT_DOUBLE_EQ(meter.Read(kStart + absl::Seconds(10)).mean_rows, 62.8);
  // A running call still counts after a long time without readings.
  const absl::Time later = kStart + absl::Hours(1);
  EXPECT_DOUBLE_EQ(meter.Read(later).mean_rows, 64);
  meter.End(64, true, later);
  EXPECT_EQ(meter.Read(later + absl::Seconds(11)).mean_rows, 0);
}

// The cost of a call is rows times seconds. It does not depend on the number of
// calls, so that Envoy's weights do not follow its own choices.
TEST(LoadMeterTest, CallsOverUtilizationIsWhatTheServerCanDo) {
  for (const int calls_per_second : {1, 10}) {
    LoadMeter meter;
    for (int i = 0; i < 10 * calls_per_second; ++i) {
      const absl::Time begin = kStart + absl::Seconds(1) * i / calls_per_second;
      meter.Begin(4, begin);
      meter.End(4, true, begin + absl::Milliseconds(50));
    }
    const RecentLoad load = meter.Read(kStart + absl::Seconds(10));
    EXPECT_NEAR(load.calls_per_second / Utilization(load, 100), 500, 1e-6);
  }
}

}  // namespace
}  // namespace espalier::serve
