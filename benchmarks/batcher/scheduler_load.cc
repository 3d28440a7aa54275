#include "benchmarks/batcher/scheduler_load.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/model_description.h"

namespace espalier {
namespace {

constexpr int kVocabSize = 1000;
constexpr int kPromptLength = 40;
constexpr int kMaxNewTokens = 4000;

ModelDescription NullModel(const SchedulerLoad::Options& options) {
  ModelDescription model;
  model.vocab_size = kVocabSize;
  model.max_context = 8192;
  model.page_size = 16;
  model.num_pages = 1 << 18;
  // A request of the queue is as wide as all that run, so that it waits.
  model.limits.max_beams = options.num_requests * options.num_beams;
  model.has_shareable_pages = true;
  if (options.has_encoder) {
    model.encoder = {.max_source_tokens = kPromptLength,
                     .decoder_prompt = {kVocabSize - 1}};
  }
  return model;
}

// Returns the CPU time of this thread, so that other programs on the machine do
// not count.
std::chrono::nanoseconds CpuTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) +
         std::chrono::nanoseconds(time.tv_nsec);
}

// Returns the time that reading this clock, a system call, adds to an interval.
std::chrono::nanoseconds ClockCost() {
  std::chrono::nanoseconds least = std::chrono::nanoseconds::max();
  for (int i = 0; i < 1000; ++i) {
    const std::chrono::nanoseconds begin = CpuTime();
    least = std::min(least, CpuTime() - begin);
  }
  return least;
}

}  // namespace

SchedulerLoad::SchedulerLoad(const Options& options) : options_(options) {
  SchedulerOptions scheduling;
  scheduling.max_running = options.num_requests + 1;
  scheduling.max_step_tokens = 1 << 20;
  scheduling.validate_steps = false;
  scheduler_ = std::make_unique<Scheduler>(NullModel(options), scheduling);
  for (int i = 0; i < options.num_requests + options.num_waiting; ++i) {
    Submit(i);
  }
  while (num_steps_ < 3) Step();
  CHECK_EQ(scheduler_->num_running(), options.num_requests);
}

SchedulerLoad::~SchedulerLoad() {
  scheduler_->CancelAll(absl::CancelledError());
}

void SchedulerLoad::Submit(int i) {
  Request request;
  // No two begin alike.
  request.prompt_tokens.assign(kPromptLength, i % kVocabSize);
  request.params.num_beams = options_.num_beams;
  request.params.max_new_tokens = kMaxNewTokens;
  request.params.ignore_eos = true;
  const ModelDescription model = NullModel(options_);
  const absl::Status valid = ValidateRequest(model, &request);
  CHECK(valid.ok()) << valid.ToString();
  scheduler_->Submit(RequestId{i},
                     PreparedRequest(std::move(request), nullptr, &model),
                     [](const absl::StatusOr<Result>&) {});
}

std::chrono::nanoseconds SchedulerLoad::Step() {
  static const std::chrono::nanoseconds clock_cost = ClockCost();
  const std::chrono::nanoseconds begin = CpuTime();
  scheduler_->SetTime(num_steps_ * 10'000'000);
  StepPlan plan = scheduler_->Plan();
  const std::chrono::nanoseconds planned = CpuTime();
  StepResult answer = Answer(plan);
  const std::chrono::nanoseconds answered = CpuTime();
  scheduler_->SetTime(num_steps_ * 10'000'000 + 9'000'000);
  scheduler_->Advance(std::move(answer));
  const std::chrono::nanoseconds end = CpuTime();
  ++num_steps_;
  return (planned - begin) + (end - answered) - 2 * clock_cost;
}

// Two candidates of each beam from the first on: so the first half of the beams
// have two children each, and the others none.
StepResult SchedulerLoad::Answer(const StepPlan& plan) {
  StepResult result;
  for (const PlanSelection& selection : plan.selections) {
    SelectionResult& answer = result.selections.emplace_back();
    answer.request = selection.request;
    const int num_candidates = selection.num_candidates();
    for (int i = 0; i < num_candidates; ++i) {
      const int beam = selection.num_rows == 1 ? 0 : i / 2;
      const auto token =
          static_cast<TokenId>(1 + (num_steps_ + i) % (kVocabSize - 1));
      answer.candidates.push_back({beam, token, -0.01f * (num_steps_ + i)});
    }
  }
  return result;
}

}  // namespace espalier
