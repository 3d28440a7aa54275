// Groups that are preempted to host memory and resume give the results that
// they give alone, for every kind of group and interruption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "beam/pages/group_pages.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

class CudaExecutorSwapTest : public CudaExecutorTest {
 protected:
  // Loads an executor with `num_pages` pages, and as many slots.
  static OnDevice LoadPages(int page_size, int64_t num_pages,
                            int64_t num_slots) {
    CudaTransformerOptions options = Float32();
    options.page_size = page_size;
    const OnDevice any = Load(options);
    const CudaKvCache& cache = any.model->cache();
    const int64_t page_bytes =
        cache.num_layers * cache.page_stride() * NumBytes(DType::kFloat32);
    options.kv_cache_bytes = page_bytes * (num_pages + 1);  // the null page
    const int64_t record_bytes =
        (page_bytes + page_size * int64_t{sizeof(int)} + 15) / 16 * 16;
    OnDevice device =
        Load(options, *device_, {.host_cache_bytes = record_bytes * num_slots});
    EXPECT_EQ(device.steps->description().num_pages, num_pages);
    EXPECT_EQ(device.steps->description().num_host_slots, num_slots);
    return device;
  }
  static int64_t MostPages(const std::vector<Request>& requests,
                           int page_size) {
    int64_t most = 0;
    for (const Request& request : requests) {
      most = std::max(most, GroupPages::WorstCase(request, page_size));
    }
    return most;
  }
  // Long ones, so that few fit together.
  static std::vector<Request> LongRequests(int count, uint32_t seed) {
    std::vector<Request> requests = AnyRequests(count, seed);
    for (Request& request : requests) {
      request.params.max_new_tokens = 25;
      request.params.ignore_eos = true;
      EXPECT_OK(ValidateRequest(host_->description(), &request));
    }
    return requests;
  }

  // Scheduler statistics at the last plan.
  SchedulerStats stats_;
  int64_t most_slots_ = 0;
  DriveOptions Watched(int num_in_flight, PreemptedPages pages) {
    DriveOptions options = {.num_in_flight = num_in_flight};
    options.scheduler.preempted_pages = pages;
    options.before_plan = [this](Scheduler& scheduler, int) {
      stats_ = scheduler.stats();
      most_slots_ =
          std::max<int64_t>(most_slots_, scheduler.host_pool().num_held());
    };
    return options;
  }
  void PrintSwaps(const char* name) const {
    std::printf("%s: %ld groups were preempted, %ld pages out, %ld in\n", name,
                stats_.num_preemptions, stats_.num_swapped_pages_out,
                stats_.num_swapped_pages_in);
  }
};

TEST_F(CudaExecutorSwapTest, WhatComesBackFromTheHostIsWhatWasThere) {
  const std::vector<Request> requests = LongRequests(Cases(40, 6), 611);
  const Answers expected = OnHost(requests);
  for (const int page_size :
       Cases(std::vector<int>{3, 1}, std::vector<int>{3})) {
    const int64_t num_pages = MostPages(requests, page_size) + 5;
    const OnDevice device = LoadPages(page_size, num_pages, 4 * num_pages);
    for (const int num_in_flight : {1, 2}) {
      ExpectSame(expected,
                 Drive(*device.steps, requests,
                       Watched(num_in_flight, PreemptedPages::kHost)),
                 "to the host and back");
      PrintSwaps("host");
      EXPECT_GT(stats_.num_preemptions, 0);
      EXPECT_GT(stats_.num_swapped_pages_in, 0);
      PrintFigures(*device.steps);
    }
  }
}

// More sequences than a step has tables for: computed again they take several
// steps, loaded they come back in one.
TEST_F(CudaExecutorSwapTest, AGroupOfMoreThan64SequencesResumes) {
  constexpr int kPageSize = 16;
  std::vector<Request> requests(2);
  for (int i = 0; i < 2; ++i) {
    for (int t = 0; t < 20; ++t) {
      requests[i].prompt_tokens.push_back(300 + 17 * t + 5 * i);
    }
    GenerationParams& params = requests[i].params;
    params.do_sample = true;
    params.seed = 40 + i;
    params.ignore_eos = true;
    // The first takes all pages in the end, those of the other, too, which the
    // prefix tree would keep else.
    params.num_return_sequences = i == 0 ? 90 : 100;
    params.max_new_tokens = i == 0 ? 60 : 40;
    ASSERT_OK(ValidateRequest(host_->description(), &requests[i]));
  }
  const int64_t num_pages = MostPages(requests, kPageSize) + 1;
  // On the device, too: the host draws another token where two are near.
  const OnDevice roomy = LoadPages(kPageSize, 4 * num_pages, 0);
  const Answers expected =
      Drive(*roomy.steps, requests, Watched(1, PreemptedPages::kDrop));
  EXPECT_EQ(stats_.num_preemptions, 0);
  const OnDevice device = LoadPages(kPageSize, num_pages, num_pages);
  ASSERT_GT(100, device.steps->description().limits.max_prefill_rows);
  for (const PreemptedPages pages :
       {PreemptedPages::kHost, PreemptedPages::kDrop, PreemptedPages::kAuto}) {
    for (const int num_in_flight : {1, 2}) {
      const Answers actual =
          Drive(*device.steps, requests, Watched(num_in_flight, pages));
      // A token that is drawn near the border of two may be the other where
      // its history was fed in other steps: we saw one text of 130.
      int num_others = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_TRUE(expected[i].ok() && actual[i].ok()) << "request " << i;
        std::multiset<std::vector<TokenId>> texts;
        for (const Hypothesis& h : expected[i]->hypotheses) {
          texts.insert(h.tokens);
        }
        for (const Hypothesis& h : actual[i]->hypotheses) {
          const auto text = texts.find(h.tokens);
          if (text == texts.end()) {
            ++num_others;
          } else {
            texts.erase(text);
          }
        }
      }
      EXPECT_LE(num_others, 4);
      PrintSwaps(pages == PreemptedPages::kHost ? "host" : "drop or auto");
      EXPECT_GT(stats_.num_preemptions, 0);
      if (pages == PreemptedPages::kHost) {
        EXPECT_GT(stats_.num_swapped_pages_in,
                  device.steps->description().limits.max_prefill_rows);
      } else if (pages == PreemptedPages::kDrop) {
        EXPECT_EQ(stats_.num_swapped_pages_in, 0);
      }
    }
  }
}

TEST_F(CudaExecutorSwapTest, FewSlotsHoldWhatTheyCan) {
  constexpr int kPageSize = 3;
  const std::vector<Request> requests = LongRequests(Cases(30, 6), 77);
  const Answers expected = OnHost(requests);
  const int64_t num_pages = MostPages(requests, kPageSize) + 3;
  const OnDevice device = LoadPages(kPageSize, num_pages, 7);
  ExpectSame(expected,
             Drive(*device.steps, requests, Watched(2, PreemptedPages::kHost)),
             "seven slots");
  PrintSwaps("seven slots");
  EXPECT_EQ(most_slots_, 7);
}

TEST_F(CudaExecutorSwapTest, CancellingAtAnyMomentLeavesTheOthersAlone) {
  constexpr int kPageSize = 3;
  const int num_requests = Cases(40, 6);
  const std::vector<Request> requests = LongRequests(num_requests, 8);
  const Answers expected = OnHost(requests);
  const int64_t num_pages = MostPages(requests, kPageSize) + 3;
  const OnDevice device = LoadPages(kPageSize, num_pages, 2 * num_pages);
  DriveOptions options = Watched(2, PreemptedPages::kHost);
  options.before_plan = [&, watch = options.before_plan](Scheduler& scheduler,
                                                         int num_plans) {
    watch(scheduler, num_plans);
    if (num_plans % 5 != 1) return;
    scheduler.Cancel(RequestId{num_plans * 7 % num_requests},
                     absl::CancelledError("by the test"));
  };
  const Answers actual = Drive(*device.steps, requests, options);
  Comparison comparison;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!actual[i].ok()) continue;
    comparison.Add(expected[i]->hypotheses, actual[i]->hypotheses,
                   Concat("request ", i));
  }
  comparison.Print("not cancelled");
  PrintSwaps("cancelled");
}

TEST_F(CudaExecutorSwapTest, WhatIsNoSlotOrPageIsRefusedAndOthersGoOn) {
  const OnDevice device = LoadPages(16, 100, 3);
  const OnDevice without = Load(Float32());
  EXPECT_EQ(without.steps->description().num_host_slots, 0);
  const std::vector<Request> requests = LongRequests(1, 5);
  const Answers expected = OnHost(requests);
  StepPlan plan;
  plan.page_saves = {{PageId{0}, HostSlotId{3}}};
  EXPECT_THAT(RunPlan(*device.steps, plan),
              StatusIs(kInvalid, HasSubstr("host slot 3")));
  plan.page_saves.clear();
  plan.page_loads = {{HostSlotId{0}, PageId{5000}}};
  EXPECT_THAT(RunPlan(*device.steps, plan),
              StatusIs(kInvalid, HasSubstr("page 5000")));
  EXPECT_THAT(RunPlan(*without.steps, plan),
              StatusIs(kInvalid, HasSubstr("no host slots")));
  ExpectSame(expected, Drive(*device.steps, requests, {.num_in_flight = 2}),
             "after refusals");
}

TEST_F(CudaExecutorSwapTest, HostMemoryIsNamedAndBounded) {
  const OnDevice device = LoadPages(16, 100, 50);
  const CudaMemoryParts parts = device.steps->figures().memory;
  const auto part = std::find_if(
      parts.begin(), parts.end(),
      [](const CudaMemoryPart& p) { return p.name == "preempted pages"; });
  ASSERT_NE(part, parts.end());
  EXPECT_TRUE(part->is_pinned);
  EXPECT_EQ(part->bytes, 50 * device.steps->description().page_bytes);
  EXPECT_GT(device.steps->description().host_bandwidth, 1e9);
  const auto refused = [&](int64_t bytes) {
    return CudaExecutor::Create(device.model, {.host_cache_bytes = bytes})
        .status();
  };
  EXPECT_THAT(refused(-1), StatusIs(kInvalid, HasSubstr("host_cache_bytes")));
  EXPECT_THAT(refused(10), StatusIs(kInvalid, HasSubstr("host_cache_bytes")));
  // Unless it is a default: then there are no slots.
  const auto none = CudaExecutor::Create(
      device.model, {.host_cache_bytes = 10, .requires_host_cache = false});
  ASSERT_OK(none.status());
  EXPECT_EQ((*none)->description().num_host_slots, 0);
}

}  // namespace
}  // namespace espalier::testing
