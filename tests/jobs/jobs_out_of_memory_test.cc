// Batches whose thread runs out of memory: each call still has one result, and
// no batch waits for ever. Its allocations fail once, in turn.
//
// A program of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "base/status.h"
#include "jobs/batches.h"
#include "tests/few_cases.h"
#include "tests/jobs/job_folder.h"
#include "tests/replace_operator_new.h"

namespace {

// Allocations of the batches' thread until one fails; negative: none does.
std::atomic<int64_t> num_allocations_left = -1;
thread_local bool is_client = false;

}  // namespace

void espalier::testing::OnAllocation() {
  if (is_client || num_allocations_left < 0) return;
  if (num_allocations_left-- == 0) throw std::bad_alloc();
}

namespace espalier::jobs {
namespace {

namespace asio = boost::asio;

constexpr int kNumCalls = 3;

// Waits, and echoes.
asio::awaitable<openai::BatchOutcome> Answer(RunningCall call) {
  asio::steady_timer timer(co_await asio::this_coro::executor,
                           std::chrono::milliseconds(0));
  co_await timer.async_wait(asio::use_awaitable);
  co_return openai::BatchOutcome{.http_status = 200,
                                 .request_id = "a request with a long id",
                                 .body = std::move(call.body)};
}

std::string Input() {
  std::string input;
  for (int i = 0; i < kNumCalls; ++i) {
    input += Concat(R"({"custom_id":"the custom id of call )", i,
                    R"(","method":"POST","url":"/v1/completions","body":)",
                    R"({"prompt":"a prompt of some length"}})", "\n");
  }
  return input;
}

openai::Batch Await(const Batches& batches, const std::string& id) {
  for (int i = 0; i < 2'000; ++i) {
    openai::Batch batch = batches.Find("", id).value();
    if (openai::IsFinal(batch.status)) return batch;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "the batch does not end";
  return {};
}

// A second batch shows that the first one lost no place of a call.
TEST(JobsOutOfMemoryTest, EachCallHasOneResult) {
  is_client = true;
  int num_good = 0;
  int64_t count = 0;
  for (; num_good < 3 && !HasFailure(); count += testing::Cases(1, 2)) {
    const JobFolder folder;
    const auto files = folder.OpenFiles();
    const BatchOptions options = {.max_running_calls = 1,
                                  .pause = absl::Milliseconds(1)};
    const auto batches =
        Batches::Open(folder.path(), options, files.get()).value();
    ASSERT_OK(batches->Start(Answer));
    const openai::BatchOrder order = {
        .endpoint = "/v1/completions",
        .input_file_id = AddFile(files.get(), Input())->id,
        .completion_window = "1h",
        .window_seconds = 3600};
    num_allocations_left = count;
    for (int i = 0; i < 2 && !HasFailure(); ++i) {
      const std::string id = batches->Create("", order)->id;
      const openai::Batch batch = Await(*batches, id);
      if (i == 0) num_good += num_allocations_left >= 0;
      num_allocations_left = -1;
      EXPECT_EQ(openai::NameOf(batch.status), "completed");
      EXPECT_EQ(batch.num_completed, kNumCalls);
      const std::string output = ReadWhole(files->PathOf(batch.output_file_id));
      EXPECT_EQ(std::ranges::count(output, '\n'), kNumCalls);
    }
    if (HasFailure()) ADD_FAILURE() << "after allocation " << count;
  }
  EXPECT_GT(count, 100);
}

}  // namespace
}  // namespace espalier::jobs
