#include "examples/cli/output/figures.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/wording.h"

namespace espalier::cli {
namespace {

double Percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

double Percent(absl::Duration part, absl::Duration whole) {
  return Percent(absl::ToDoubleSeconds(part), absl::ToDoubleSeconds(whole));
}

std::string TimeShares(const EngineStats& stats) {
  const absl::Duration whole = stats.step_time;
  // Clocks of two threads may differ by more than the remaining time.
  const absl::Duration outside =
      std::max(absl::ZeroDuration(), whole - stats.forward_time);
  return absl::StrFormat(
      "outside the model %.1f%% of the time (plan %.1f, select %.1f, "
      "draft %.1f, advance %.1f, hand-over %.1f)\n",
      Percent(outside, whole), Percent(stats.plan_time, whole),
      Percent(stats.select_time, whole), Percent(stats.draft_time, whole),
      Percent(stats.advance_time, whole), Percent(stats.hand_over_time, whole));
}

// "0 preemptions", or their number and cost.
std::string Preemptions(const SchedulerStats& s) {
  const std::string count = Pluralize(s.num_preemptions, "preemption");
  if (s.num_preemptions == 0) return count;
  return absl::StrFormat("%s (%s fed again, %d cached, %d loaded)", count,
                         Pluralize(s.num_tokens_fed_again, "token"),
                         s.num_tokens_shared_again, s.num_tokens_loaded_again);
}

// Nothing where all ended by themselves.
std::string CutOff(const SchedulerStats& s) {
  const int64_t at_length = s.num_finished_by(FinishReason::kLength);
  const int64_t at_deadline = s.num_finished_by(FinishReason::kDeadline);
  if (at_length + at_deadline == 0) return "";
  return absl::StrFormat("cut off: %s at max_new_tokens, %d at a deadline\n",
                         Pluralize(at_length, "request"), at_deadline);
}

// Nothing where nothing was drafted.
std::string Drafts(const SchedulerStats& s) {
  if (s.num_drafted_tokens == 0 && s.num_draft_steps == 0 &&
      s.num_draft_failures == 0) {
    return "";
  }
  std::string failures;
  if (s.num_draft_failures > 0) {
    failures = absl::StrFormat("the draft model failed in %s, last with %s\n",
                               Pluralize(s.num_draft_failures, "step"),
                               s.last_draft_failure.ToString());
  }
  return absl::StrFormat(
             "drafted %s, accepted %d (%.1f%%), %.2f tokens per step of a "
             "sequence; %s of the draft model alone\n",
             Pluralize(s.num_drafted_tokens, "token"), s.num_accepted_tokens,
             Percent(s.num_accepted_tokens, s.num_drafted_tokens),
             s.speculation.TokensPerStep(),
             Pluralize(s.num_draft_steps, "step")) +
         failures;
}

// " (900/s with all beams)"; nothing where there are no more than returned, as
// of greedy search: the first token of each, which is of its prompt's step, is
// not counted here.
std::string WithAllBeams(const SchedulerStats& s, double seconds) {
  const int64_t count = s.num_decode_rows + s.num_accepted_tokens;
  if (count <= s.num_generated_tokens) return "";
  return absl::StrFormat(" (%.0f/s with all beams)", count / seconds);
}

}  // namespace

std::string FormatFigures(const EngineStats& s, int num_requests,
                          absl::Duration wall_time) {
  const double seconds = absl::ToDoubleSeconds(wall_time);
  return absl::StrFormat("%s in %.3f s: %s returned, %.0f tokens/s%s\n",
                         Pluralize(num_requests, "request"), seconds,
                         Pluralize(s.num_generated_tokens, "token"),
                         s.num_generated_tokens / seconds,
                         WithAllBeams(s, seconds)) +
         absl::StrFormat(
             "%s: %s and %d cached, %s, %s\n", Pluralize(s.num_steps, "step"),
             Pluralize(s.num_prompt_tokens, "prompt token"),
             s.num_cached_tokens, Pluralize(s.num_decode_rows, "beam row"),
             Preemptions(s)) +
         CutOff(s) + Drafts(s) +
         absl::StrFormat("%s at most, %d without sharing (%.0f%%)\n",
                         Pluralize(s.peak_pages, "page"), s.peak_unshared_pages,
                         Percent(s.peak_pages, s.peak_unshared_pages)) +
         Pluralize(s.num_tail_copies, "tail copy", "tail copies") + "\n" +
         TimeShares(s);
}

}  // namespace espalier::cli
