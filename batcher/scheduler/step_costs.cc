#include "batcher/scheduler/step_costs.h"

#include <algorithm>

#include "beam/drafts/group_drafts.h"

namespace espalier {
namespace {

constexpr double kDecay = 0.99;     // weight decay per step
constexpr double kLeastWeight = 8;  // in steps, and in rows of a draft model
// Drafts are tried again when steps without them have lasted this many times as
// long as the last drafts.
constexpr double kIdleTimes = 50;
constexpr int kLeastIdleSteps = 64;
// Tokens squared. Below this variance the steps were about equal, and noise
// would determine the slope.
constexpr double kLeastVariance = 0.05;

}  // namespace

void StepCosts::RecordStep(int num_tokens, absl::Duration forward_time) {
  const double x = num_tokens;
  const double y = absl::ToDoubleSeconds(forward_time);
  if (num_tokens < 1 || y <= 0) return;
  idle_seconds_ += y;
  ++num_idle_steps_;
  steps_ = {.weight = kDecay * steps_.weight + 1,
            .x = kDecay * steps_.x + x,
            .y = kDecay * steps_.y + y,
            .xx = kDecay * steps_.xx + x * x,
            .xy = kDecay * steps_.xy + x * y};
}

void StepCosts::RecordWait(absl::Duration wait) {
  waits_[num_waits_++ % kNumWaits] = std::max(absl::ToDoubleSeconds(wait), 0.0);
}

void StepCosts::RecordDrafts(int num_rows, absl::Duration draft_time) {
  const double seconds = absl::ToDoubleSeconds(draft_time);
  if (num_rows < 1 || seconds <= 0) return;
  if (is_draft_cost_old()) {
    drafted_ = std::max<double>(num_rows, kLeastWeight);
    draft_seconds_ = seconds / num_rows * drafted_;
  } else {
    drafted_ = kDecay * drafted_ + num_rows;
    draft_seconds_ = kDecay * draft_seconds_ + seconds;
  }
  last_draft_seconds_ = seconds;
  idle_seconds_ = 0;
  num_idle_steps_ = 0;
}

bool StepCosts::is_draft_cost_old() const {
  return drafted_ >= kLeastWeight && num_idle_steps_ >= kLeastIdleSteps &&
         idle_seconds_ >= kIdleTimes * last_draft_seconds_;
}

std::optional<DraftCost> StepCosts::At(int num_sequences, bool by_model) const {
  if (steps_.weight < kLeastWeight) return std::nullopt;
  if (by_model && drafted_ < kLeastWeight) return std::nullopt;
  const double mean_x = steps_.x / steps_.weight;
  const double mean_y = steps_.y / steps_.weight;
  const double variance = steps_.xx / steps_.weight - mean_x * mean_x;
  if (variance < kLeastVariance) return std::nullopt;
  const double covariance = steps_.xy / steps_.weight - mean_x * mean_y;
  // Clamped: more tokens never cost less, nor more than in proportion.
  const double slope = std::clamp(covariance / variance, 0.0, mean_y / mean_x);
  const double start = mean_y - slope * mean_x;
  const double step = start + slope * num_sequences;
  DraftCost cost = {.row = num_sequences * slope / step};
  if (num_waits_ >= kNumWaits) {
    cost.wait = *std::ranges::min_element(waits_) / step;
  }
  if (by_model) {
    cost.draft = num_sequences * draft_seconds_ / drafted_ / step;
    if (is_draft_cost_old()) {
      cost.draft = std::min(cost.draft, GroupDrafts::kModelCost);
    }
  }
  return cost;
}

}  // namespace espalier
