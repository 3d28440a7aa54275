#include "tests/executor/drafts/toy_device.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/page_count.h"
#include "base/status.h"
#include "kernels/verify/verify.h"
#include "pages/page_table.h"
#include "tests/executor/drive.h"

namespace espalier::testing {

ToyDevice::ToyDevice(int max_pause_us)
    : max_pause_us_(max_pause_us), thread_([this] { Loop(); }) {}

ToyDevice::~ToyDevice() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ToyDevice::Enqueue(Task task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void ToyDevice::Pause() {
  if (max_pause_us_ == 0) return;
  // At every second call, of whichever thread: so both are ahead at times.
  const int n = num_pauses_++;
  if (n % 2 == 0) return;
  std::this_thread::sleep_for(
      std::chrono::microseconds(n * 7919 % max_pause_us_));
}

void ToyDevice::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    Pause();
    task();
    lock.lock();
  }
}

namespace {

// Rewrites rows with pages for all they feed, as many as a step needs.
void TrimPages(const StepPlan& from, int page_size, StepPlan* plan) {
  plan->page_indices.clear();
  plan->page_indptr = {0};
  for (size_t i = 0; i < plan->rows.size(); ++i) {
    const PlanRow& row = plan->rows[i];
    const int num_pages =
        NumPages(row.first_position + row.num_tokens, page_size);
    CHECK_LE(num_pages, std::ssize(from.row_pages(i))) << "pages of a row";
    plan->page_indices.append(from.row_pages(i).first(num_pages));
    plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
  }
}

}  // namespace

TokenId DrawDraftFor(const DraftSequence& sequence, int num_generated,
                     std::span<const float> logits) {
  const SelectionParams& params = *sequence.params;
  std::vector<TokenEdit> storage;
  const std::shared_ptr<const ScoreEdits> all = EditsOf(params);
  const ScoreEdits::View edits =
      all->OfRow({.num_generated = num_generated,
                  .vocab_size = static_cast<int>(logits.size())},
                 &storage);
  const DrawOptions options = {
      .params = params.sampling,
      .sample = static_cast<uint32_t>(sequence.sample),
      .position = static_cast<uint32_t>(num_generated),
      .repetition_penalty = params.processors.repetition_penalty,
      .edits = edits.edits,
      .is_allow_list = edits.is_allow_list};
  return DrawDraft({logits, options}, params.verify_mode).token;
}

// An enqueued run, with a copy of its inputs.
struct ToyDeviceSampler::Run {
  StepPlan plan;
  std::vector<DraftSequence> sequences;
  std::vector<std::vector<TokenId>> tokens;  // by sequence
  std::vector<std::vector<float>> logits;    // as well
  std::vector<VerifiedDraft> verified;       // as well
  std::promise<void> drawn;
  absl::Status status = absl::OkStatus();

  void Draw(Model* model, int* num_with_two);
};

void ToyDeviceSampler::Run::Draw(Model* model, int* num_with_two) {
  const int vocab_size = model->description().vocab_size;
  std::vector<int> num_generated;
  std::vector<std::vector<TokenId>> fed;
  StepPlan step = plan;
  int longest = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const DraftSequence& sequence = sequences[i];
    const auto row_tokens = plan.row_tokens(plan.rows[i]);
    fed.emplace_back(row_tokens.begin(), row_tokens.end());
    num_generated.push_back(static_cast<int>(sequence.generated.size()));
    longest = std::max(longest, sequence.num_tokens);
    const PendingDraft& before = sequence.verified_before;
    if (before.empty()) continue;
    const auto [num_accepted, next] =
        Within(*before.verified(), before.num_tokens());
    num_generated[i] += num_accepted + 1;
    step.rows[i].first_position += num_accepted;
    fed[i] = {next};
    if (num_accepted < before.num_tokens()) continue;
    --step.rows[i].first_position;
    fed[i].insert(fed[i].begin(), std::max(before.token(num_accepted - 1), 0));
    ++*num_with_two;
  }
  for (int drafted = 0; drafted < longest && status.ok(); ++drafted) {
    step.tokens.clear();
    for (size_t i = 0; i < sequences.size(); ++i) {
      step.rows[i].first_token = static_cast<int>(step.tokens.size());
      step.rows[i].num_tokens = static_cast<int>(fed[i].size());
      step.tokens.insert(step.tokens.end(), fed[i].begin(), fed[i].end());
    }
    TrimPages(plan, model->description().page_size, &step);
    std::vector<float> all(sequences.size() * vocab_size);
    status = model->Forward(step, all);
    step.page_copies.clear();
    for (size_t i = 0; i < sequences.size(); ++i) {
      step.rows[i].first_position += static_cast<int>(fed[i].size()) - 1;
      fed[i] = {fed[i].back()};  // again, of one that has all of its own
      if (drafted >= sequences[i].num_tokens) continue;
      const auto row = std::span(all).subspan(i * vocab_size, vocab_size);
      const TokenId token =
          DrawDraftFor(sequences[i], num_generated[i] + drafted, row);
      tokens[i][drafted] = token;
      std::ranges::copy(row, logits[i].begin() + drafted * vocab_size);
      if (drafted + 1 == sequences[i].num_tokens) continue;
      ++step.rows[i].first_position;
      fed[i] = {std::max(token, 0)};
    }
  }
}

bool ToyDeviceSampler::CanSample(const DraftSequence& sequence) const {
  return sequence.search == nullptr &&
         !sequence.params->processors.needs_history() &&
         sequence.params->processors.forced_last_tokens.empty();
}

absl::StatusOr<std::shared_ptr<ToyDeviceSampler::Run>>
ToyDeviceSampler::Enqueue(const StepPlan& plan,
                          std::span<const DraftSequence* const> sequences) {
  const auto run = std::make_shared<Run>();
  run->plan = plan;
  const size_t vocab_size = model_->description().vocab_size;
  for (const DraftSequence* const sequence : sequences) {
    if (!sequence->verified_before.empty()) ++num_unread_;
    run->sequences.push_back(*sequence);
    run->tokens.emplace_back(sequence->num_tokens, 1000);
    run->logits.emplace_back(sequence->num_tokens * vocab_size);
  }
  run->plan.rows.resize(run->sequences.size());
  run->plan.num_logits = static_cast<int>(run->sequences.size());
  run->verified.resize(sequences.size());
  device_->Pause();
  last_drawn_ = run->drawn.get_future();
  device_->Enqueue([this, run] {
    run->Draw(model_.get(), &num_with_two_);
    run->drawn.set_value();
  });
  return run;
}

absl::StatusOr<std::vector<SampledDraft>> ToyDeviceSampler::Sample(
    const StepPlan& plan, std::span<const DraftSequence* const> sequences) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Run> run, Enqueue(plan, sequences));
  RETURN_IF_ERROR(Wait().status());
  RETURN_IF_ERROR(run->status);
  std::vector<SampledDraft> drafts(sequences.size());
  for (size_t i = 0; i < drafts.size(); ++i) {
    drafts[i].tokens = run->tokens[i];
    if (!NeedsDraftLogits(*sequences[i]->params)) continue;
    drafts[i].logits = DraftLogits(run->logits[i]);
  }
  return drafts;
}

absl::StatusOr<std::vector<SampledDraft>> ToyDeviceSampler::Start(
    const StepPlan& plan, std::span<const DraftSequence* const> sequences) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Run> run, Enqueue(plan, sequences));
  std::vector<SampledDraft> drafts(sequences.size());
  for (size_t i = 0; i < run->sequences.size(); ++i) {
    drafts[i].pending =
        PendingDraft({run, run->tokens[i].data()}, 1, sequences[i]->num_tokens,
                     &run->verified[i]);
    if (!NeedsDraftLogits(*sequences[i]->params)) continue;
    drafts[i].logits = {
        std::shared_ptr<const float>(run, run->logits[i].data()),
        run->logits[i].size(), DraftLogits::kHost};
  }
  return drafts;
}

absl::StatusOr<absl::Duration> ToyDeviceSampler::Wait() {
  if (last_drawn_.valid()) last_drawn_.get();
  return absl::ZeroDuration();
}

namespace {

// A selection whose inputs are complete only on the device.
struct Unknown {
  size_t selection = 0;
  std::vector<PendingDraft> drafts;
  bool is_unread = false;
};

// Writes the device's results into the plan, as if the host had read them.
std::vector<Unknown> FillIn(int page_size, StepPlan* plan) {
  std::vector<Unknown> all;
  const StepPlan planned = *plan;
  for (size_t s = 0; s < plan->selections.size(); ++s) {
    const PlanSelection& asked = planned.selections[s];
    const DrawSelection* const asked_draws = asked.as_draws();
    if (asked_draws == nullptr) continue;
    const SampleDrafts& drafts = asked_draws->drafts;
    if (drafts.pending.empty() && drafts.verified_before.empty()) continue;
    PlanSelection& selection = plan->selections.Edit(s);
    DrawSelection& draws = selection.EditDraws();
    all.push_back({s, drafts.pending, !drafts.verified_before.empty()});
    all.back().drafts.resize(asked.num_rows);
    size_t row_idx = 0;
    while (plan->rows[row_idx].first_logits != asked.first_logits) ++row_idx;
    std::vector<int> num_generated;
    for (int rank = 0; rank < asked.num_rows; ++rank, ++row_idx) {
      PlanRow& row = plan->rows[row_idx];
      int num_accepted = 0;
      if (all.back().is_unread) {
        const PendingDraft& before = drafts.verified_before[rank];
        const VerifiedDraft verified =
            Within(*before.verified(), before.num_tokens());
        num_accepted = verified.num_accepted;
        row.first_position += num_accepted;
        plan->tokens[row.first_token] = verified.next;
        selection.cum_log_probs[rank] = 0;
      }
      num_generated.push_back(asked.num_generated_of(rank) + num_accepted);
      const PendingDraft& draft = all.back().drafts[rank];
      for (int i = 0; i < draft.num_tokens(); ++i) {
        draws.drafts.tokens[rank][i] = draft.token(i);
        plan->tokens[row.first_token + 1 + i] = std::max(draft.token(i), 0);
      }
    }
    draws.row_num_generated.assign(num_generated.begin(), num_generated.end());
    draws.drafts.pending.clear();
    draws.drafts.verified_before.clear();
  }
  TrimPages(planned, page_size, plan);
  return all;
}

// Writes the outcome of drafts, and the result without the tokens that the
// planner does not have.
void SayVerified(const std::vector<Unknown>& all, StepResult* result) {
  for (const Unknown& unknown : all) {
    SelectionResult& answer = result->selections[unknown.selection];
    const SelectionResult whole = std::exchange(
        answer, {.request = answer.request,
                 .has_unverified_drafts = answer.has_unverified_drafts,
                 .error = answer.error});
    size_t first = 0;
    for (size_t rank = 0; rank < whole.num_tokens.size(); ++rank) {
      const PendingDraft& draft = unknown.drafts[rank];
      const int count = whole.num_tokens[rank];
      if (draft.verified() != nullptr) {
        *draft.verified() = {count - 1,
                             whole.candidates[first + count - 1].token};
      }
      // After the end of a text nothing was drafted.
      const int num_kept =
          draft.empty()
              ? count
              : std::min(count, static_cast<int>(draft.Tokens().size()) + 1);
      answer.num_tokens.push_back(num_kept);
      float before = 0;
      for (int i = 0; i < num_kept; ++i) {
        Candidate drawn = whole.candidates[first + i];
        const float sum = drawn.cum_log_prob;
        if (unknown.is_unread) drawn.cum_log_prob -= std::exchange(before, sum);
        answer.candidates.push_back(drawn);
        if (whole.logprobs.empty()) continue;
        answer.logprobs.push_back(whole.logprobs[first + i]);
      }
      first += count;
    }
  }
}

}  // namespace

struct ToyDeviceExecutor::InFlight {
  StepPlan plan;
  Done done;
  StepDrafter::Step drafts;
  std::promise<absl::StatusOr<StepResult>> ended;
};

ToyDeviceExecutor::ToyDeviceExecutor(std::shared_ptr<ToyDevice> device,
                                     std::shared_ptr<StepExecutor> steps,
                                     std::shared_ptr<DraftModel> draft,
                                     std::function<bool(int)> fails,
                                     std::shared_ptr<std::atomic<bool>> failing)
    : device_(std::move(device)),
      steps_(std::move(steps)),
      fails_(std::move(fails)),
      failing_(std::move(failing)),
      description_(steps_->description()),
      drafter_(draft, description_.page_size, /*may_pend=*/true) {
  description_.limits.max_drafted_length = draft->max_tokens();
}

ToyDeviceExecutor::~ToyDeviceExecutor() {
  const auto await = [](ToyDevice& thread) {
    std::promise<void> ended;
    thread.Enqueue([&] { ended.set_value(); });
    ended.get_future().wait();
  };
  await(launch_thread_);  // all plans are launched
  await(*device_);        // and have run
  await(launch_thread_);  // and are answered
}

void ToyDeviceExecutor::Execute(StepPlan plan, Done done) {
  const auto started = std::make_shared<InFlight>();
  started->plan = std::move(plan);
  started->done = std::move(done);
  launch_thread_.Enqueue([this, started] { Launch(started); });
}

void ToyDeviceExecutor::Launch(const std::shared_ptr<InFlight>& started) {
  if (drafter_.MustWait(started->plan)) Read(unread_.size());
  drafter_.Begin(&started->plan, &started->drafts);
  unread_.push_back(started);
  const bool fails = fails_(num_steps_++);
  device_->Enqueue([this, started, fails] {
    const std::vector<Unknown> unknown =
        FillIn(description_.page_size, &started->plan);
    // The executor has to see it: it forgets all groups then.
    if (failing_ != nullptr) *failing_ = fails;
    absl::StatusOr<StepResult> result =
        RunPlan(*steps_, std::move(started->plan));
    if (result.ok()) SayVerified(unknown, &*result);
    started->ended.set_value(std::move(result));
    launch_thread_.Enqueue([this, started] {
      if (!unread_.empty() && unread_.front() == started) Read(1);
    });
  });
  if (fails && num_steps_ % 2 != 0) {
    Read(unread_.size());
  } else {
    drafter_.DraftForLater(&started->drafts);
  }
}

void ToyDeviceExecutor::Read(size_t count) {
  for (; count > 0; --count) {
    const std::shared_ptr<InFlight> next = std::move(unread_.front());
    unread_.pop_front();
    absl::StatusOr<StepResult> result = next->ended.get_future().get();
    next->plan = {};
    drafter_.End(&next->drafts, &result);
    next->done(std::move(result));
  }
}

}  // namespace espalier::testing
