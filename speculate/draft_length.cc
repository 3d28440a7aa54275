#include "speculate/draft_length.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"

namespace espalier {
int BestDraftLength(std::span<const double> acceptance, const DraftCost& cost) {
  int best = 0;
  double best_rate = 1;
  double num_tokens = 1;
  double all_accepted = 1;
  for (size_t i = 0; i < acceptance.size(); ++i) {
    all_accepted *= acceptance[i];
    num_tokens += all_accepted;
    const double rate =
        num_tokens / (1 + cost.wait + (i + 1) * (cost.row + cost.draft));
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = static_cast<int>(i) + 1;
  }
  return best;
}

DraftLength::DraftLength(const DraftLengthOptions& options)
    : options_(options),
      averages_(options.max_tokens),
      probe_interval_(options.probe_interval),
      max_verified_(options.max_tokens) {
  CHECK(options.max_tokens >= 1 && options.max_tokens <= kMaxDraftTokens)
      << options.max_tokens << " tokens";
  CHECK(options.decay > 0 && options.decay < 1) << options.decay;
  averages_[0].num_observed = options.prior_weight;
  averages_[0].num_accepted = options.prior_weight * options.prior_acceptance;
}

// A position with few or old observations takes over the estimate of the one
// before it, so that drafts can grow. The first position counts its prior among
// its observations, and the prior decays with them.
std::vector<double> DraftLength::Acceptance() const {
  std::vector<double> acceptance;
  for (const Average& average : averages_) {
    const double weight = acceptance.empty() ? 0 : options_.prior_weight;
    const double prior = acceptance.empty() ? 0 : acceptance.back();
    acceptance.push_back((average.num_accepted + weight * prior) /
                         (average.num_observed + weight));
  }
  return acceptance;
}

int DraftLength::Next(const DraftCost& cost) {
  if (options_.is_fixed) return options_.max_tokens;
  if (num_steps_to_skip_ > 0) {
    --num_steps_to_skip_;
    return 0;
  }
  const std::vector<double> acceptance = Acceptance();
  const int best =
      BestDraftLength(std::span(acceptance).first(max_verified_), cost);
  if (best > 0) {
    num_idle_steps_ = 0;
    probe_interval_ = options_.probe_interval;
    return best;
  }
  ++num_idle_steps_;
  // If all are accepted.
  const bool can_pay =
      options_.max_tokens * (1 - cost.row - cost.draft) > cost.wait;
  return can_pay && num_idle_steps_ > probe_interval_ ? 1 : 0;
}

void DraftLength::Record(int num_drafted, int num_accepted) {
  CHECK(0 <= num_accepted && num_accepted <= num_drafted)
      << num_accepted << " accepted of " << num_drafted;
  if (num_drafted == 0) return;
  max_verified_ =
      std::min(std::max(max_verified_, num_drafted) + 1, options_.max_tokens);
  skip_interval_ = 1;
  for (int i = 0; i < static_cast<int>(averages_.size()); ++i) {
    // Tokens after a rejected one are not observations.
    const bool is_observed = i < num_drafted && i <= num_accepted;
    Average& average = averages_[i];
    average.num_observed =
        options_.decay * average.num_observed + (is_observed ? 1 : 0);
    average.num_accepted =
        options_.decay * average.num_accepted + (i < num_accepted ? 1 : 0);
  }
  if (num_idle_steps_ > probe_interval_) {
    probe_interval_ =
        std::min(2 * probe_interval_, options_.max_probe_interval);
  }
  num_idle_steps_ = 0;
}

void DraftLength::RecordUnverified(int num_drafted) {
  constexpr int kMaxSkipInterval = 8;
  if (num_drafted == 0) return;
  max_verified_ = std::max(num_drafted / 2, 1);
  if (num_drafted > 1) return;
  num_steps_to_skip_ = skip_interval_;
  skip_interval_ = std::min(2 * skip_interval_, kMaxSkipInterval);
}

}  // namespace espalier
