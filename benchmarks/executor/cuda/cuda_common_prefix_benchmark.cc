// Savings of the prefix tree for requests with a common prefix.
//
//   cuda_common_prefix_benchmark [CASE]...  8b:32x8/4096 without
//   (decode_case.h)
//
// The requests of a case come at once. Their prompts share a prefix of the
// given length, followed by 32 tokens of their own; each request generates 32
// tokens. Prints the seconds until all have a first token, and until all are
// done, with and without the tree, and the number of computed prompt tokens.
// Weights are random, numbers are 16 bits wide, and pages have 16 tokens.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <future>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "batcher/scheduler/scheduler.h"
#include "benchmarks/cuda_replays.h"
#include "benchmarks/executor/cuda/decode_case.h"
#include "benchmarks/median.h"
#include "executor/cuda/cuda_executor.h"
#include "model/cuda/cuda_transformer.h"

namespace espalier {
namespace {

constexpr int kPageSize = 16;
constexpr int kRounds = 3;
constexpr int kNumOwnTokens = 32;
constexpr int kNumNewTokens = 32;

std::vector<TokenId> RandomTokens(int count, int vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = random() % vocab_size;
  return tokens;
}

Request CommonRequest(const DecodeCase& c, int i,
                      const ModelDescription& model) {
  Request request;
  request.prompt_tokens =
      RandomTokens(c.num_prompt_tokens, c.shape().vocab_size, 0);
  const std::vector<TokenId> own =
      RandomTokens(kNumOwnTokens, c.shape().vocab_size, 1 + i);
  request.prompt_tokens.insert(request.prompt_tokens.end(), own.begin(),
                               own.end());
  request.params = c.Params(i, kNumNewTokens);
  Check(ValidateRequest(model, &request));
  return request;
}

struct Times {
  double first = 0;  // seconds until all have a token
  double all = 0;
  int64_t num_computed = 0;  // prompt tokens
};

// All requests, two plans in flight.
Times RunAll(CudaExecutor& steps, const DecodeCase& c, bool prefix_cache) {
  Scheduler scheduler(
      steps.description(),
      {.max_running = c.num_requests,
       .max_step_tokens = steps.description().limits.max_step_tokens,
       .prefix_cache = prefix_cache,
       .validate_steps = false});
  Times times;
  for (int i = 0; i < c.num_requests; ++i) {
    scheduler.Submit(
        RequestId{i}, PreparedRequest(CommonRequest(c, i, steps.description())),
        [](absl::StatusOr<Result> result) { Check(result.status()); });
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  struct Step {
    std::vector<RequestId> answered;
    std::future<absl::StatusOr<StepResult>> result;
  };
  std::set<RequestId> has_token;
  std::deque<Step> running;
  while (true) {
    while (running.size() < 2) {
      StepPlan plan = scheduler.Plan();
      if (plan.is_noop()) break;
      std::vector<RequestId> answered;
      for (const PlanSelection& selection : plan.selections) {
        answered.push_back(selection.request);
      }
      const auto done =
          std::make_shared<std::promise<absl::StatusOr<StepResult>>>();
      running.push_back({std::move(answered), done->get_future()});
      steps.Execute(std::move(plan), [done](absl::StatusOr<StepResult> result) {
        done->set_value(std::move(result));
      });
    }
    if (running.empty()) break;
    Step step = std::move(running.front());
    running.pop_front();
    absl::StatusOr<StepResult> result = step.result.get();
    Check(result.status());
    for (const RequestId request : step.answered) {
      if (has_token.insert(request).second) times.first = seconds();
    }
    scheduler.Advance(std::move(result));
  }
  times.all = seconds();
  times.num_computed = scheduler.stats().num_prompt_tokens;
  return times;
}

Times MedianTimes(CudaExecutor& steps, const DecodeCase& c, bool prefix_cache) {
  RunAll(steps, c, prefix_cache);  // warms up
  std::vector<double> first, all;
  Times times;
  for (int i = 0; i < kRounds; ++i) {
    times = RunAll(steps, c, prefix_cache);
    first.push_back(times.first);
    all.push_back(times.all);
  }
  times.first = Median(std::move(first));
  times.all = Median(std::move(all));
  return times;
}

void Run(const std::string& text, const CudaDevice& device) {
  const DecodeCase c = Get(DecodeCase::Parse(text));
  const int64_t page_bytes =
      int64_t{4} * c.shape().num_layers() * kPageSize * c.shape().kv_size();
  const int64_t num_pages =
      int64_t{c.num_requests} *
      (2 + (c.num_prompt_tokens + kNumOwnTokens) / kPageSize +
       c.num_beams * (2 + kNumNewTokens / kPageSize));
  const CudaTransformerOptions options = {
      .page_size = kPageSize,
      .kv_cache_bytes = (num_pages + 1) * page_bytes,
      .max_tokens = 2048,
      .max_logits = std::max(c.num_rows(), 64)};
  const std::shared_ptr<CudaModel> model =
      Get(CudaTransformer::Random(c.shape(), options, device));
  const auto steps = Get(CudaExecutor::Create(model));
  const Times without = MedianTimes(*steps, c, false);
  const Times with = MedianTimes(*steps, c, true);
  std::printf("%s, %d own and %d new tokens a request\n", text.c_str(),
              kNumOwnTokens, kNumNewTokens);
  for (const auto& [name, times] : {std::pair{"without the tree", without},
                                    std::pair{"with the tree", with}}) {
    std::printf(
        "%-16s %8lld prompt tokens computed, all have a first token after "
        "%7.3f s, all are done after %7.3f s\n",
        name, static_cast<long long>(times.num_computed), times.first,
        times.all);
  }
  std::printf("ratio            %8.2f, %.2f, %.2f\n",
              static_cast<double>(without.num_computed) / with.num_computed,
              without.first / with.first, without.all / with.all);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;  // NOLINT
  const CudaDevice device = Get(CudaDevice::Open(0));
  std::printf("%s\n", device.name.c_str());
  std::vector<std::string> cases(argv + 1, argv + argc);
  if (cases.empty()) cases = {"8b:32x8/4096"};
  for (const std::string& text : cases) Run(text, device);
}
