#include "batcher/prometheus_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/prometheus_checker.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::PrometheusSamples;
using ::espalier::testing::ReadPrometheus;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kMillisecond = 1'000'000;

// Every number another.
EngineStats SomeStats() {
  EngineStats s;
  s.num_requests = 27;
  s.num_finished = {2, 3, 4};
  s.num_failed[1] = 5;   // cancelled
  s.num_failed[4] = 6;   // deadline
  s.num_failed[8] = 1;   // resource exhausted
  s.num_failed[16] = 0;  // there is none
  s.num_running = 3;
  s.num_waiting = 2;
  s.num_preempted = 1;
  s.num_rows_running = 192;
  s.num_pages = 100;
  s.num_pages_held = 25;
  s.num_pages_idle = 5;
  s.num_pages_free = 70;
  s.num_pages_unshared = 50;
  s.page_size = 16;
  s.num_prompt_tokens = 700;
  s.num_cached_tokens = 300;
  s.num_queried_tokens = 900;
  s.num_tokens_fed_again = 40;
  s.num_preemptions = 7;
  s.num_tokens_loaded_again = 80;
  s.num_swapped_pages_out = 6;
  s.num_swapped_pages_in = 5;
  s.num_draft_tokens_fed = 14;
  s.num_drafted_tokens = 11;
  s.num_accepted_tokens = 8;
  s.speculation.Record(4, 3, 3);
  s.speculation.Record(2, 2, 3);
  s.speculation.Record(0, 0, 1);
  s.num_steps = 21;
  s.num_draft_steps = 9;
  s.num_draft_failures = 4;
  s.num_list_waits = 6;
  s.plan_time = absl::Microseconds(1500);
  s.time_to_first_token.Add(3 * kMillisecond);
  s.time_to_first_token.Add(5 * kMillisecond);
  s.time_to_first_token.Add(3'000'000 * kMillisecond);
  return s;
}

PrometheusSamples Read(const EngineStats& stats,
                       std::vector<MetricLabel> labels = {}) {
  const auto samples = ReadPrometheus(PrometheusText(stats, labels));
  EXPECT_OK(samples);
  return samples.ok() ? *samples : PrometheusSamples();
}

TEST(PrometheusTextTest, RoutersFindWhatTheyKnow) {
  const PrometheusSamples samples = Read(SomeStats());
  EXPECT_EQ(samples.at("vllm:num_requests_running"), 3);
  EXPECT_EQ(samples.at("vllm:num_requests_waiting"), 2 + 1);
  EXPECT_EQ(samples.at("vllm:kv_cache_usage_perc"), 0.25);
  EXPECT_EQ(
      samples.at(
          R"(vllm:cache_config_info{block_size="16",num_gpu_blocks="100"})"),
      1);
  EXPECT_EQ(samples.at("vllm:num_preemptions_total"), 7);
  EXPECT_EQ(samples.at("vllm:prefix_cache_queries_total"), 900);
  EXPECT_EQ(samples.at("vllm:prefix_cache_hits_total"), 300);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_total"), 1000);
  const std::string success = "vllm:request_success_total{finished_reason=\"";
  EXPECT_EQ(samples.at(success + "stop\"}"), 2 + 3);
  EXPECT_EQ(samples.at(success + "length\"}"), 4);
  EXPECT_EQ(samples.at(success + "abort\"}"), 5 + 6);
  EXPECT_EQ(samples.at(success + "error\"}"), 1);
}

TEST(PrometheusTextTest, WaitingTokensAreThoseOfDecoderPromptsToo) {
  EXPECT_THAT(PrometheusText(SomeStats(), {}),
              HasSubstr("# HELP espalier:prompt_tokens_waiting Prompt and "
                        "decoder prompt tokens of the requests that wait.\n"));
}

TEST(PrometheusTextTest, WhatIsOursIsThere) {
  const PrometheusSamples samples = Read(SomeStats());
  EXPECT_EQ(samples.at("espalier:rows_running"), 192);
  EXPECT_EQ(samples.at("espalier:page_sharing_ratio"), 2);
  EXPECT_EQ(samples.at(R"(espalier:pages{state="free"})"), 70);
  EXPECT_EQ(samples.at(R"(espalier:tokens_fed_total{kind="again"})"), 40);
  EXPECT_EQ(samples.at("espalier:tokens_loaded_again_total"), 80);
  EXPECT_EQ(samples.at(R"(espalier:swapped_pages_total{direction="out"})"), 6);
  EXPECT_EQ(samples.at(R"(espalier:swapped_pages_total{direction="in"})"), 5);
  EXPECT_EQ(samples.at(R"(espalier:phase_seconds_total{phase="plan"})"),
            0.0015);
  EXPECT_EQ(
      samples.at(R"(espalier:requests_ended_total{reason="eos",code="OK"})"),
      2);
  EXPECT_EQ(samples.at("espalier:requests_ended_total{reason=\"deadline\","
                       "code=\"DEADLINE_EXCEEDED\"}"),
            6);
}

TEST(PrometheusTextTest, SpeculationIsThereByPosition) {
  const PrometheusSamples samples = Read(SomeStats());
  EXPECT_EQ(samples.at("vllm:spec_decode_num_drafts_total"), 2);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_draft_tokens_total"), 11);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_accepted_tokens_total"), 8);
  const auto at = [&](const std::string& name, int position) {
    return samples.at(name + "{position=\"" + std::to_string(position) + "\"}");
  };
  const std::string accepted =
      "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  const std::string drafted =
      "espalier:spec_decode_num_draft_tokens_per_pos_total";
  for (int i = 0; i < kMaxDraftTokens; ++i) {
    EXPECT_EQ(at(accepted, i), i < 2 ? 2 : i < 3 ? 1 : 0);
    EXPECT_EQ(at(drafted, i), i < 2 ? 2 : i < 4 ? 1 : 0);
  }
  EXPECT_EQ(samples.at("espalier:spec_decode_num_target_steps_total"), 3);
  EXPECT_EQ(samples.at("espalier:spec_decode_num_tokens_total"), 7);
  EXPECT_EQ(samples.at("espalier:steps_total"), 21);
  EXPECT_EQ(samples.at("espalier:draft_steps_total"), 9);
  EXPECT_EQ(samples.at("espalier:draft_failures_total"), 4);
  EXPECT_EQ(samples.at("espalier:constraint_list_waits_total"), 6);
  EXPECT_EQ(samples.at(R"(espalier:tokens_fed_total{kind="draft"})"), 14);
}

TEST(PrometheusTextTest, HistogramsAreCumulative) {
  const PrometheusSamples samples = Read(SomeStats());
  const std::string name = "vllm:time_to_first_token_seconds";
  EXPECT_EQ(samples.at(name + R"(_bucket{le="0.001"})"), 0);
  EXPECT_EQ(samples.at(name + R"(_bucket{le="0.005"})"), 2);
  EXPECT_EQ(samples.at(name + R"(_bucket{le="2560.0"})"), 2);
  EXPECT_EQ(samples.at(name + R"(_bucket{le="+Inf"})"), 3);
  EXPECT_EQ(samples.at(name + "_count"), 3);
  EXPECT_EQ(samples.at(name + "_sum"), 3000.008);
  // vLLM's first and last.
  EXPECT_EQ(
      samples.count(R"(vllm:inter_token_latency_seconds_bucket{le="80.0"})"),
      1);
  EXPECT_EQ(
      samples.count(R"(vllm:request_queue_time_seconds_bucket{le="7680.0"})"),
      1);
}

TEST(PrometheusTextTest, NothingDoneIsZerosOfTheSameFamilies) {
  const PrometheusSamples none = Read(EngineStats());
  const PrometheusSamples some = Read(SomeStats());
  ASSERT_EQ(none.size(), some.size());
  for (const auto& [sample, value] : none) {
    if (sample.find("cache_config_info") != std::string::npos) continue;
    EXPECT_EQ(some.count(sample), 1) << sample;
    EXPECT_EQ(value, sample == "espalier:page_sharing_ratio" ? 1 : 0) << sample;
  }
}

TEST(PrometheusTextTest, LabelsAreOfEverySampleAndEscaped) {
  const PrometheusSamples samples =
      Read(SomeStats(), {{"model_name", "a\"b\\c\nd"}, {"engine", "0"}});
  EXPECT_EQ(samples.size(), Read(SomeStats()).size());
  const std::string labels = R"({model_name="a\"b\\c\nd",engine="0")";
  for (const auto& [sample, value] : samples) {
    EXPECT_THAT(sample, HasSubstr(labels));
  }
  EXPECT_EQ(samples.at("vllm:num_requests_running" + labels + "}"), 3);
}

TEST(PrometheusCheckerTest, WhatIsNotOfTheFormatIsRefused) {
  const std::string head = "# HELP a_total A.\n# TYPE a_total counter\n";
  EXPECT_OK(ReadPrometheus(head + "a_total{b=\"\\\"\"} 1.5\n"));
  for (const std::string& bad :
       {std::string("a 1\n"), head + "a_total 1", head + "b_total 1\n",
        head + "a_total -1\n", head + "a_total 1\na_total 1\n",
        head + "a_total{b=\"\"\"} 1\n", head + "a_total{b=\"\\x\"} 1\n",
        head + "a_total{1b=\"\"} 1\n", head + "a_total NaN\n",
        head + "a_total  1\n", head + head, head + "\n",
        head + "# HELP a A.\n# TYPE a gauge\n",
        std::string("# TYPE a gauge\na 1\n"),
        std::string("# HELP a A.\n# TYPE a counter\na 1\n")}) {
    EXPECT_THAT(ReadPrometheus(bad), StatusIs(kInvalid, ::testing::_)) << bad;
  }
  const std::string histogram = "# HELP h H.\n# TYPE h histogram\n";
  const std::string good =
      histogram + "h_bucket{le=\"1.0\"} 1\nh_bucket{le=\"+Inf\"} 2\n";
  EXPECT_OK(ReadPrometheus(good + "h_sum 5\nh_count 2\n"));
  for (const std::string& bad :
       {good + "h_sum 5\n", good + "h_sum 5\nh_count 3\n",
        histogram + "h_bucket{le=\"1.0\"} 1\nh_sum 5\nh_count 1\n",
        histogram + "h_bucket{le=\"2.0\"} 1\nh_bucket{le=\"1.0\"} 1\n",
        histogram + "h_bucket{le=\"1.0\"} 3\nh_bucket{le=\"+Inf\"} 2\n",
        histogram + "h_bucket 1\n"}) {
    EXPECT_THAT(ReadPrometheus(bad), StatusIs(kInvalid, ::testing::_)) << bad;
  }
}

}  // namespace
}  // namespace espalier
