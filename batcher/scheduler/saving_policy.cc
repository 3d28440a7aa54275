#include "batcher/scheduler/saving_policy.h"

#include <algorithm>
#include <cmath>

namespace espalier {
namespace {

// Weight of a step relative to the next one: about the last 20 steps count.
constexpr double kRateDecay = 0.95;

double SecondsPerPage(const ModelDescription& model) {
  if (model.host_bandwidth <= 0) return 0;
  return static_cast<double>(model.page_bytes) / model.host_bandwidth;
}

}  // namespace

SavingPolicy::SavingPolicy(const ModelDescription& model,
                           PreemptedPages preempted_pages)
    : preempted_pages_(preempted_pages),
      page_size_(model.page_size),
      seconds_per_page_(SecondsPerPage(model)) {}

void SavingPolicy::AddStep(const PlanInFlight& plan,
                           absl::Duration forward_time) {
  if (2 * plan.num_prompt_tokens <= plan.num_tokens) return;
  seconds_ = kRateDecay * seconds_ + absl::ToDoubleSeconds(forward_time);
  num_tokens_ = kRateDecay * num_tokens_ + static_cast<double>(plan.num_tokens);
}

int SavingPolicy::min_tokens() const {
  if (preempted_pages_ == PreemptedPages::kDrop) return page_size_ + 1;
  if (preempted_pages_ == PreemptedPages::kHost || seconds_ <= 0) return 1;
  const double least = seconds_per_page_ * num_tokens_ / seconds_;
  if (!(least < page_size_)) return page_size_ + 1;
  return std::max(1, static_cast<int>(std::floor(least)) + 1);
}

}  // namespace espalier
