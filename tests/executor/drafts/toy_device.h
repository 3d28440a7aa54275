// A toy device: a thread that runs tasks in order, each after a random pause,
// as a GPU does behind the host. With a sampler and an executor on it, tokens
// are drafted while the plan that verifies them is on its way, and steps begin
// where the device finds that the previous step has ended
// (SampleDrafts::verified_before).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "exec_request/model.h"
#include "exec_request/step_executor.h"
#include "executor/drafts/draft_sampler.h"
#include "executor/drafts/step_drafter.h"

namespace espalier::testing {

// The token that a sequence drafts after `num_generated` tokens, drawn from
// this row of logits.
// REQUIRES: its processors do not read the text.
TokenId DrawDraftFor(const DraftSequence& sequence, int num_generated,
                     std::span<const float> logits);

class ToyDevice {
 public:
  using Task = std::function<void()>;

  //   max_pause_us  before a task, or on the host before it asks for one
  explicit ToyDevice(int max_pause_us);
  ~ToyDevice();  // all tasks have run

  void Enqueue(Task task);
  void Pause();

 private:
  void Loop();

  const int max_pause_us_;
  std::atomic<int> num_pauses_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool is_ending_ = false;
  std::thread thread_;
};

// Draws on the device, with the model itself.
class ToyDeviceSampler : public DraftSampler {
 public:
  ToyDeviceSampler(std::shared_ptr<ToyDevice> device,
                   std::shared_ptr<Model> model)
      : device_(std::move(device)), model_(std::move(model)) {}
  ~ToyDeviceSampler() override {
    if (last_drawn_.valid()) last_drawn_.wait();
  }

  bool CanSample(const DraftSequence& sequence) const override;
  int max_row_tokens() const override { return 2; }
  int max_draft_tokens() const override { return 8; }
  bool follows_verification() const override { return true; }
  void* stream() const override { return device_.get(); }
  absl::StatusOr<std::vector<SampledDraft>> Sample(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) override;
  absl::StatusOr<std::vector<SampledDraft>> Start(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) override;
  absl::StatusOr<absl::Duration> Wait() override;

  // Sequences whose drafts began after a verification that only the device
  // knew; and of these, that fed two tokens.
  int num_unread() const { return num_unread_; }
  int num_unread_with_two() const { return num_with_two_; }

 private:
  struct Run;
  absl::StatusOr<std::shared_ptr<Run>> Enqueue(
      const StepPlan& plan, std::span<const DraftSequence* const> sequences);

  const std::shared_ptr<ToyDevice> device_;
  const std::shared_ptr<Model> model_;
  std::future<void> last_drawn_;
  int num_unread_ = 0;
  int num_with_two_ = 0;  // counted on the device
};

// Runs the steps of `steps` on the device, with drafts of `draft`, which
// samples there: a thread launches drafts and steps, and reads results, as that
// of a CudaExecutor does.
class ToyDeviceExecutor : public StepExecutor {
 public:
  //   fails    whether a step fails, by its number: half of those that do fail
  //            when they are launched
  //   failing  what the model of `steps` fails by, meanwhile; null: none does
  ToyDeviceExecutor(
      std::shared_ptr<ToyDevice> device, std::shared_ptr<StepExecutor> steps,
      std::shared_ptr<DraftModel> draft,
      std::function<bool(int)> fails = [](int) { return false; },
      std::shared_ptr<std::atomic<bool>> failing = nullptr);
  ~ToyDeviceExecutor() override;  // its plans are answered

  const ModelDescription& description() const override { return description_; }
  int max_plans_in_flight() const override { return 2; }
  void Execute(StepPlan plan, Done done) override;

 private:
  struct InFlight;

  void Launch(const std::shared_ptr<InFlight>& started);
  // Waits for the first `count` unread results, and answers their plans.
  void Read(size_t count);

  const std::shared_ptr<ToyDevice> device_;
  const std::shared_ptr<StepExecutor> steps_;
  const std::function<bool(int)> fails_;
  const std::shared_ptr<std::atomic<bool>> failing_;
  ModelDescription description_;

  // Used on the launch thread.
  StepDrafter drafter_;
  std::deque<std::shared_ptr<InFlight>> unread_;
  int num_steps_ = 0;

  ToyDevice launch_thread_{0};
};

}  // namespace espalier::testing
