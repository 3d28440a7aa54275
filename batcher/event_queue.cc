#include "batcher/event_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/memory.h"

namespace espalier {
namespace {

// Appends the content of `from` to `*to`.
template <typename Event>
void Append(const Event& from, Event* to) {
  to->tokens.insert(to->tokens.end(), from.tokens.begin(), from.tokens.end());
  to->text += from.text;
}

}  // namespace

void EventQueue::Extend(SampleEvent event) {
  if (waiting_idx_.size() <= event.sample) {
    waiting_idx_.resize(event.sample + 1, -1);
  }
  int& idx = waiting_idx_[event.sample];
  if (idx < 0) {
    idx = static_cast<int>(samples_.size());
    samples_.push_back(std::move(event));
    return;
  }
  SampleEvent& waiting = samples_[idx];
  Append(event, &waiting);
  std::ranges::move(event.logprobs, std::back_inserter(waiting.logprobs));
  waiting.finish_reason = event.finish_reason;
}

void EventQueue::Extend(StablePrefixEvent event) {
  if (prefix_.has_value()) {
    Append(event, &*prefix_);
  } else {
    prefix_ = std::move(event);
  }
}

void EventQueue::Replace(BeamsEvent event) { beams_ = std::move(event); }

void EventQueue::End(absl::StatusOr<Result> result) {
  ended_ = true;
  if (result.ok()) {
    result_ = *std::move(result);
  } else {
    error_ = result.status();
  }
  Flush();
}

bool EventQueue::empty() const {
  return samples_.empty() && !prefix_.has_value() && !beams_.has_value() &&
         !ended_;
}

void EventQueue::Flush() {
  if (reader_ == nullptr || empty()) return;
  last_ = UntilThereIsMemory([this] { return Take(); });
  ++num_handed_out_;
  std::exchange(reader_, nullptr)(last_);
}

void EventQueue::Read(int64_t num_received, Reader reader) {
  CHECK(num_handed_out_ - num_received <= (last_ == nullptr ? 0 : 1))
      << num_received << " of " << num_handed_out_ << " batches received";
  if (num_received < num_handed_out_) return reader(last_);
  last_ = nullptr;
  reader_ = std::move(reader);
  Flush();
}

std::shared_ptr<EventBatch> EventQueue::Take() {
  auto batch = std::make_shared<EventBatch>();
  batch->events.reserve(samples_.size() + 3);  // no allocation from here on
  const auto take = [&](auto& event) {
    if (event.has_value()) batch->events.push_back(*std::move(event));
    event.reset();
  };
  take(prefix_);
  for (SampleEvent& event : samples_) {
    waiting_idx_[event.sample] = -1;
    batch->events.push_back(std::move(event));
  }
  samples_.clear();
  take(beams_);
  take(result_);
  if (ended_) batch->end = error_;
  return batch;
}

}  // namespace espalier
