// Pages of preempted groups on their way to host memory and back, and what
// steps lose beside them.
//
//   cuda_swap_benchmark [CASE]...        8b:8x4/512 without (decode_case.h)
//
// For each case, with pages of 16 tokens in 16 bits:
//
//   link       one copy of 256 MiB between pinned memory and the device, each
//              way: what saves and loads are compared with
//   save, load so many pages with slots one after the other, and with no
//              two of them neighbours, from the first kernel to the end of the
//              last copy
//   step       of beams that decode, the median from one step's end to the
//              next's: alone, while every step saves so many pages, and while
//              every step loads them
//
// Prints GB/s, the part of the link's rate, and microseconds a step. The
// weights are random.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/cuda_pinned_memory.h"
#include "batcher/scheduler/scheduler.h"
#include "benchmarks/cuda_replays.h"
#include "benchmarks/executor/cuda/decode_case.h"
#include "benchmarks/median.h"
#include "executor/cuda/cuda_executor.h"
#include "kernels/kv_cache/cuda_cache_engine.h"
#include "model/cuda/cuda_transformer.h"

namespace espalier {
namespace {

constexpr int kPageSize = 16;
constexpr int kRounds = 9;
constexpr int64_t kLinkBytes = int64_t{256} << 20;
constexpr int kNumSwapped = 256;   // pages of a call
constexpr int kSwappedAStep = 16;  // beside steps
constexpr int kNumNewTokens = 200;

// Seconds of what `enqueue` puts on streams, which `wait` waits for.
double MedianSeconds(const std::function<void()>& enqueue,
                     const std::function<void()>& wait) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = 0; i < kRounds + 2; ++i) {
    const auto begin = Clock::now();
    enqueue();
    wait();
    const std::chrono::duration<double> time = Clock::now() - begin;
    if (i >= 2) times.push_back(time.count());
  }
  return Median(std::move(times));
}

struct Rates {
  double to_host = 0;  // bytes a second
  double to_device = 0;
};

Rates LinkRates() {
  const auto host = Get(PinnedBuffer<std::byte>::Create(kLinkBytes));
  const auto device = Get(DeviceBuffer<std::byte>::Create(kLinkBytes));
  const CudaStream stream = Get(CudaStream::Create());
  const auto rate = [&](void* to, const void* from, cudaMemcpyKind kind) {
    return kLinkBytes /
           MedianSeconds(
               [&] {
                 Check(
                     cudaMemcpyAsync(to, from, kLinkBytes, kind, stream.get()));
               },
               [&] { Check(cudaStreamSynchronize(stream.get())); });
  };
  return {rate(host.data(), device.data(), cudaMemcpyDeviceToHost),
          rate(device.data(), host.data(), cudaMemcpyHostToDevice)};
}

void PrintRate(const char* what, const char* slots, double rate, double link) {
  std::printf("%-6s %-14s %8.1f GB/s %6.1f%% of the link\n", what, slots,
              rate * 1e-9, 100 * rate / link);
}

// Swaps alone, over the model's pages.
void RunSwaps(const CudaModel& model, const Rates& link) {
  const CudaKvCache& cache = model.cache();
  const auto words =
      Get(DeviceBuffer<int>::Create(size_t{1} * cache.num_pages * kPageSize));
  const CudaPageTokens tokens = {words.data(), kPageSize};
  CudaCacheEngine engine(cache, tokens, model.device());
  const int64_t record = engine.page_bytes();
  Check(engine.AddHostSlots(2 * kNumSwapped * record));
  std::printf("%d pages of %lld bytes; measured at creation: %.1f GB/s\n",
              kNumSwapped, static_cast<long long>(record),
              engine.host_bandwidth() * 1e-9);
  const CudaStream steps = Get(CudaStream::Create());
  std::vector<int> order(kNumSwapped);
  std::iota(order.begin(), order.end(), 0);
  for (const char* slots : {"in order", "each by itself"}) {
    std::vector<PageSave> saves;
    std::vector<PageLoad> loads;
    for (int i = 0; i < kNumSwapped; ++i) {
      saves.push_back({PageId{i}, HostSlotId{order[i]}});
      loads.push_back({HostSlotId{order[i]}, PageId{i}});
    }
    const auto wait = [] { Check(cudaDeviceSynchronize()); };
    const double bytes = static_cast<double>(kNumSwapped * record);
    PrintRate(
        "save", slots,
        bytes /
            MedianSeconds(
                [&] { Check(engine.SwapPages(saves, {}, steps.get())); }, wait),
        link.to_host);
    PrintRate(
        "load", slots,
        bytes /
            MedianSeconds(
                [&] { Check(engine.SwapPages({}, loads, steps.get())); }, wait),
        link.to_device);
    for (int& slot : order) slot = 2 * slot;  // no two are neighbours
  }
}

enum class Beside { kNothing, kSaves, kLoads };

// Decodes all requests, with two plans in flight; swaps go into pages that no
// request has. Returns the seconds from one step's end to the next's where all
// beams decode in both.
double MedianStep(CudaExecutor& steps, const DecodeCase& c, Beside beside) {
  Scheduler scheduler(
      steps.description(),
      {.max_running = c.num_requests,
       .max_step_tokens = steps.description().limits.max_step_tokens,
       .prefix_cache = false,
       .validate_steps = false});
  for (int i = 0; i < c.num_requests; ++i) {
    std::mt19937 random(i);
    Request request;
    for (int t = 0; t < c.num_prompt_tokens; ++t) {
      request.prompt_tokens.push_back(random() % c.shape().vocab_size);
    }
    request.params = c.Params(i, kNumNewTokens);
    Check(ValidateRequest(steps.description(), &request));
    scheduler.Submit(
        RequestId{i}, PreparedRequest(request),
        [](absl::StatusOr<Result> result) { Check(result.status()); });
  }
  const int last_page = steps.description().num_pages - 1;
  using Clock = std::chrono::steady_clock;
  struct Answer {
    absl::StatusOr<StepResult> result;
    Clock::time_point end;
  };
  std::vector<double> times;
  Clock::time_point last_end;
  bool was_decoding = false;
  std::deque<std::pair<bool, std::future<Answer>>> running;
  while (true) {
    while (running.size() < 2) {
      StepPlan plan = scheduler.Plan();
      if (plan.is_noop()) break;
      const bool decodes =
          static_cast<int>(plan.continuations.size()) == c.num_requests;
      for (int i = 0; decodes && i < kSwappedAStep; ++i) {
        const PageId page{last_page - i};
        if (beside == Beside::kSaves) {
          plan.page_saves.push_back({page, HostSlotId{i}});
        } else if (beside == Beside::kLoads) {
          plan.page_loads.push_back({HostSlotId{i}, page});
        }
      }
      const auto done = std::make_shared<std::promise<Answer>>();
      running.emplace_back(decodes, done->get_future());
      steps.Execute(std::move(plan), [done](absl::StatusOr<StepResult> result) {
        done->set_value({std::move(result), Clock::now()});
      });
    }
    if (running.empty()) break;
    auto [decodes, future] = std::move(running.front());
    running.pop_front();
    Answer answer = future.get();
    Check(answer.result.status());
    const std::chrono::duration<double> time = answer.end - last_end;
    if (decodes && was_decoding) times.push_back(time.count());
    was_decoding = decodes;
    last_end = answer.end;
    scheduler.Advance(std::move(answer.result));
  }
  return Median(std::move(times));
}

void RunSteps(const std::shared_ptr<CudaModel>& model, const DecodeCase& c,
              const Rates& link) {
  const auto steps = Get(
      CudaExecutor::Create(model, {.host_cache_bytes = int64_t{256} << 20}));
  CHECK_GE(steps->description().num_host_slots, kSwappedAStep);
  const double bytes =
      static_cast<double>(kSwappedAStep * steps->description().page_bytes);
  const auto time = [&](Beside beside) {
    MedianStep(*steps, c, beside);  // warms up
    return 1e6 * MedianStep(*steps, c, beside);
  };
  const double alone = time(Beside::kNothing);
  const double saving = time(Beside::kSaves);
  const double loading = time(Beside::kLoads);
  std::printf(
      "a step alone %.1f us, beside %d saved pages %.1f us, beside %d loaded "
      "pages %.1f us; over the link these take %.1f us and %.1f us\n",
      alone, kSwappedAStep, saving, kSwappedAStep, loading,
      1e6 * bytes / link.to_host, 1e6 * bytes / link.to_device);
}

void Run(const std::string& text, const CudaDevice& device, const Rates& link) {
  const DecodeCase c = Get(DecodeCase::Parse(text));
  const int64_t page_bytes =
      int64_t{4} * c.shape().num_layers() * kPageSize * c.shape().kv_size();
  const int64_t num_pages =
      kNumSwapped + int64_t{c.num_requests} * c.num_beams *
                        (2 + (c.num_prompt_tokens + kNumNewTokens) / kPageSize);
  const CudaTransformerOptions options = {
      .page_size = kPageSize,
      .kv_cache_bytes = (num_pages + 1) * page_bytes,
      .max_tokens = 2048,
      .max_logits = std::max(c.num_rows(), 64)};
  const std::shared_ptr<CudaModel> model =
      Get(CudaTransformer::Random(c.shape(), options, device));
  std::printf("\n%s\n", text.c_str());
  RunSwaps(*model, link);
  RunSteps(model, c, link);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;  // NOLINT
  const CudaDevice device = Get(CudaDevice::Open(0));
  const Rates link = LinkRates();
  std::printf("%s; link: %.1f GB/s to the host, %.1f GB/s to the device\n",
              device.name.c_str(), link.to_host * 1e-9, link.to_device * 1e-9);
  std::vector<std::string> cases(argv + 1, argv + argc);
  if (cases.empty()) cases = {"8b:8x4/512", "68m:16x8/512"};
  for (const std::string& text : cases) Run(text, device, link);
}
