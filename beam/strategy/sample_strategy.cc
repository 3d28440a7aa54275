#include "beam/strategy/sample_strategy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "beam/strategy/assign_each.h"
#include "beam/strategy/describe_rows.h"
#include "beam/strategy/length_penalty.h"
#include "beam/strategy/selection_options.h"
#include "exec_request/plan_drafts.h"

namespace espalier {

SampleStrategy::SampleStrategy(const GenerationParams& params,
                               std::shared_ptr<const Constraint> constraint,
                               std::shared_ptr<const RequestText> text)
    : samples_(NumSequences(params)),
      live_(samples_.size()),
      max_new_tokens_(SaturateToInt(params.max_new_tokens.value())),
      num_return_sequences_(SaturateToInt(params.num_return_sequences)),
      length_counts_eos_(params.length_counts_eos),
      stopping_criteria_(params, std::move(constraint), std::move(text)) {
  for (Sample& sample : samples_) sample.progress = stopping_criteria_.Begin();
  std::iota(live_.begin(), live_.end(), 0);
}

void SampleStrategy::DescribeSelection(PlanSelection* selection) const {
  CHECK(!done_) << "the request is done";
  const size_t num_rows = is_forked_ ? live_.size() : 1;
  DescribeRows(
      num_rows,
      [this](size_t row) -> const Sample& { return samples_[live_[row]]; },
      stopping_criteria_, selection);
  selection->num_generated = NumGenerated(live_[0]);
  const bool differ = std::ranges::any_of(live_, [&](int sample) {
    return NumGenerated(sample) != selection->num_generated;
  });
  DrawSelection& draws = selection->Choose<DrawSelection>();
  if (differ || !draws.row_num_generated.empty()) {
    AssignEach(
        differ ? live_.size() : 0,
        [&](size_t rank) { return NumGenerated(live_[rank]); },
        &draws.row_num_generated);
  }
  AssignEach(
      live_.size(), [&](size_t rank) { return live_[rank]; }, &draws.samples);
}

int SampleStrategy::max_draft_tokens(int rank) const {
  return max_new_tokens_ - NumGenerated(live_[rank]) - 1;
}

std::vector<std::vector<TokenId>> SampleStrategy::CutDrafts(
    std::vector<std::vector<TokenId>> drafts, bool are_drawn) const {
  CHECK(is_forked_) << "samples have one row before the first step";
  for (size_t rank = 0; rank < live_.size(); ++rank) {
    // The end of a drawn draft must not depend on its tokens, so its lists are
    // made however long they take.
    const size_t length = LengthOfDraft(samples_[live_[rank]], drafts[rank],
                                        /*makes_lists=*/are_drawn);
    if (length == drafts[rank].size()) continue;
    drafts[rank].resize(are_drawn ? length + 1 : length);
  }
  return drafts;
}

size_t SampleStrategy::LengthOfDraft(const Sample& sample,
                                     std::span<const TokenId> draft,
                                     bool makes_lists) const {
  if (!stopping_criteria_.restricts()) {
    return LengthToEnd(draft, stopping_criteria_.token_ids(),
                       /*keeps_end=*/false);
  }
  StoppingCriteria::Progress progress = sample.progress;
  for (size_t i = 0; i < draft.size(); ++i) {
    if (!stopping_criteria_.MayFollow(draft[i], progress) ||
        stopping_criteria_.Feed(draft[i], &progress).hit.has_value() ||
        (!makes_lists && !stopping_criteria_.TryList(progress))) {
      return i;
    }
  }
  return draft.size();
}

void SampleStrategy::DescribeDrafts(std::vector<std::vector<TokenId>> drafts,
                                    PlanSelection* selection) const {
  if (stopping_criteria_.restricts()) {
    selection->allowed.clear();
    selection->places.clear();
    const bool by_tables = selection->params->constraint.has_value();
    const auto add_row = [&](const StoppingCriteria::Progress& progress) {
      if (by_tables) {
        selection->places.push_back(StoppingCriteria::PlaceOf(progress));
      } else {
        selection->allowed.push_back(
            stopping_criteria_.LegalTokens(progress).tokens);
      }
    };
    for (size_t rank = 0; rank < live_.size(); ++rank) {
      StoppingCriteria::Progress progress = samples_[live_[rank]].progress;
      add_row(progress);
      const size_t length = LengthOfDraft(samples_[live_[rank]], drafts[rank],
                                          /*makes_lists=*/true);
      for (size_t i = 0; i < drafts[rank].size(); ++i) {
        if (i < length) {
          stopping_criteria_.Feed(drafts[rank][i], &progress);
          add_row(progress);
        } else if (by_tables) {  // nothing may follow the truncated draft
          selection->places.emplace_back();
        } else {
          selection->allowed.emplace_back();
        }
      }
    }
  }
  selection->EditDraws().drafts.tokens = std::move(drafts);
}

absl::Status SampleStrategy::Advance(const SelectionResult& result,
                                     std::vector<Decision>* decisions) {
  CHECK(!done_) << "the request is done";
  if (!result.num_tokens.empty() || decisions != nullptr) {
    return AdvanceByRuns(result, decisions);
  }
  CHECK_EQ(result.candidates.size(), live_.size()) << "tokens drawn";
  for (size_t rank = 0; rank < result.candidates.size(); ++rank) {
    const TokenId token = result.candidates[rank].token;
    if (token >= 0) continue;
    done_ = true;
    continuations_.clear();
    return NoToken(token, live_[rank]);
  }
  AdvanceByOne(result.candidates);
  return absl::OkStatus();
}

void SampleStrategy::AdvanceByOne(std::span<const Candidate> drawn) {
  ended_.clear();
  continuations_.clear();
  size_t num_live = 0;  // samples that continue so far
  for (size_t rank = 0; rank < drawn.size(); ++rank) {
    const int idx = live_[rank];
    Sample& sample = samples_[idx];
    const TokenTree::Node node = sample.node;
    const bool is_last = sample.length + 1 >= max_new_tokens_;
    Grow(drawn[rank], is_last, stopping_criteria_, &tree_, &sample);
    if (sample.finish_reason.has_value()) {
      OnEnd(rank, node, 1);
      continue;
    }
    continuations_.push_back({drawn[rank].beam, drawn[rank].token, 1});
    live_[num_live++] = idx;
  }
  if (num_live < drawn.size()) ShrinkLive(num_live);
  is_forked_ = true;
}

absl::Status SampleStrategy::AdvanceByRuns(const SelectionResult& result,
                                           std::vector<Decision>* decisions) {
  ended_.clear();
  continuations_.clear();
  const auto num_tokens_of = [&](size_t rank) {
    return result.num_tokens.empty() ? 1 : result.num_tokens[rank];
  };
  size_t num_live = 0;  // samples that continue so far
  size_t first = 0;     // index of the first candidate
  for (size_t rank = 0; rank < live_.size(); ++rank) {
    const std::span<const Candidate> run =
        std::span(result.candidates).subspan(first, num_tokens_of(rank));
    const int sample = live_[rank];
    const TokenTree::Node node = samples_[sample].node;
    const size_t num_taken =
        GrowBy(run, static_cast<int>(first), sample, decisions);
    first += run.size();
    if (samples_[sample].finish_reason.has_value()) {
      OnEnd(rank, node, num_taken);
      continue;
    }
    if (num_taken < run.size()) {
      done_ = true;
      continuations_.clear();
      if (decisions != nullptr) decisions->clear();
      return NoToken(run[num_taken].token, sample);
    }
    continuations_.push_back(
        {run.back().beam, run.back().token, static_cast<int>(num_taken)});
    live_[num_live++] = sample;
  }
  CHECK_EQ(first, result.candidates.size()) << "tokens drawn";
  if (num_live < live_.size()) ShrinkLive(num_live);
  is_forked_ = true;
  return absl::OkStatus();
}

// In the first step all samples share one sequence, so none ends.
void SampleStrategy::OnEnd(size_t rank, TokenTree::Node node,
                           size_t num_tokens) {
  if (!is_forked_) return;
  ended_.push_back(
      {static_cast<int>(rank), node, static_cast<int>(num_tokens)});
}

void SampleStrategy::ShrinkLive(size_t num_live) {
  live_.resize(num_live);
  continuations_.resize(num_live);
  done_ = num_live == 0;
  if (done_ && !is_forked_) ended_.push_back({0, TokenTree::kRoot});
}

absl::Status SampleStrategy::NoToken(TokenId drawn, int sample_idx) const {
  std::optional<int> num_generated;
  if (samples_.size() == 1 || !is_forked_) {
    num_generated = NumGenerated(sample_idx);
  }
  return drawn == kNotANumber ? NotANumber(num_generated)
                              : AllTokensMasked(num_generated);
}

bool SampleStrategy::ContinueManySamples(std::span<const Candidate> drawn,
                                         int vocab_size) {
  return ContinueSamples(drawn, static_cast<int>(live_.size()), vocab_size);
}

int SampleStrategy::GrowBy(std::span<const Candidate> run, int first_candidate,
                           int sample_idx, std::vector<Decision>* decisions) {
  Sample& sample = samples_[sample_idx];
  for (size_t i = 0; i < run.size(); ++i) {
    if (run[i].token < 0) return static_cast<int>(i);
    const TokenTree::Node parent = sample.node;
    const bool is_last = NumGenerated(sample_idx) + 1 >= max_new_tokens_;
    Grow(run[i], is_last, stopping_criteria_, &tree_, &sample);
    const bool ends = sample.finish_reason.has_value();
    if (decisions != nullptr) {
      const int idx = first_candidate + static_cast<int>(i);
      decisions->push_back(DecisionOn(idx, parent, sample));
      decisions->back().is_followed = !ends && i + 1 < run.size();
    }
    if (ends) return static_cast<int>(i) + 1;
  }
  return static_cast<int>(run.size());
}

void SampleStrategy::FinishLive(FinishReason reason) {
  CHECK(!done_ && is_forked_) << "nothing was generated";
  done_ = true;
  for (const int i : live_) {
    Sample& sample = samples_[i];
    sample.finish_reason = stopping_criteria_.AtEnd(sample.progress, reason);
  }
  live_.clear();
}

void SampleStrategy::ForEachProgress(
    absl::FunctionRef<void(const StoppingCriteria::Progress&)> visit) const {
  for (const int sample : live_) visit(samples_[sample].progress);
}

TokenTree::Node SampleStrategy::node(int rank) const {
  return samples_[live_[rank]].node;
}

Decision SampleStrategy::DecisionOn(int candidate_idx, TokenTree::Node parent,
                                    const Sample& sample) const {
  Decision decision = {.candidate_idx = candidate_idx,
                       .what = Decision::What::kKept,
                       .why = "drawn",
                       .parent = parent,
                       .node = sample.node};
  if (sample.finish_reason.has_value()) {
    decision.what = Decision::What::kFinished;
    decision.why = NameOf(*sample.finish_reason);
    decision.score = ScoreOf(sample);
  }
  return decision;
}

float SampleStrategy::ScoreOf(const Sample& sample) const {
  const int length = tree_.depth(sample.node);
  if (length == 0) return 0.0f;
  const bool is_last_out = !length_counts_eos_ &&
                           sample.finish_reason.has_value() &&
                           stopping_criteria_.IsEnd(tree_.token(sample.node));
  return MeanLogProb(sample.cum_log_prob, ScoredLength(length, is_last_out));
}

Hypothesis SampleStrategy::HypothesisOf(const Sample& sample) const {
  return {.tokens = tree_.Path(sample.node),
          .score = ScoreOf(sample),
          .cum_log_prob = sample.cum_log_prob,
          .finish_reason = *sample.finish_reason};
}

std::vector<Hypothesis> SampleStrategy::Hypotheses() const {
  std::vector<Hypothesis> hypotheses;
  for (size_t i = 0; i < samples_.size(); ++i) {
    if (!samples_[i].finish_reason.has_value()) continue;
    hypotheses.push_back(HypothesisOf(samples_[i]));
    hypotheses.back().sample = static_cast<int>(i);
  }
  std::ranges::stable_sort(hypotheses, [](const auto& a, const auto& b) {
    return a.score > b.score;
  });
  if (std::ssize(hypotheses) > num_return_sequences_) {
    hypotheses.resize(num_return_sequences_);
  }
  return hypotheses;
}

std::vector<SequenceState> SampleStrategy::States() const {
  std::vector<SequenceState> states;
  for (const Sample& sample : samples_) {
    states.push_back({sample.node, sample.cum_log_prob, ScoreOf(sample),
                      sample.finish_reason});
  }
  return states;
}

}  // namespace espalier
