#include "beam/drafts/group_drafts.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "beam/strategy/selection_options.h"

namespace espalier {
namespace {

DraftLengthOptions LengthOptions(const GenerationParams& params) {
  DraftLengthOptions options;
  if (params.speculate.has_value()) {
    options.max_tokens = SaturateToInt(params.speculate->num_tokens);
    options.is_fixed = params.speculate->always_drafts;
    // All beams must be on drafts, so the prior acceptance rate weighs less.
    if (IsBeamSearch(params)) options.prior_weight = 2;
  }
  return options;
}

absl::Status ValidateTokens(std::span<const TokenId> tokens,
                            const RequestedDraft& asked, int vocab_size) {
  if (std::ssize(tokens) > asked.num_tokens) {
    return Internal("a step drafted ", tokens.size(), " tokens for sequence ",
                    asked.rank, ", which asked for ", asked.num_tokens);
  }
  for (const TokenId token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    return Internal("a step drafted token ", token, " of ", vocab_size);
  }
  return absl::OkStatus();
}

}  // namespace

GroupDrafts::GroupDrafts(const GenerationParams& params, bool supports_drafts,
                         std::unique_ptr<Drafter> drafter)
    : length_(LengthOptions(params)) {
  if (!params.speculate.has_value() || !supports_drafts) return;
  if (IsBeamSearch(params)) rows_per_token_ = NumSequences(params);
  rows_at_first_ = rows_per_token_;
  if (!MayPay(params)) return;
  is_by_model_ = params.speculate->method == SpeculationMethod::kDraft;
  drafts_count_ = params.speculate->mode == SpeculationMode::kRejection &&
                  DrawsAtRandom(params);
  if (drafter != nullptr) drafters_.push_back(std::move(drafter));
  if (can_draft()) num_tokens_ = length_.Next(Cost());
}

bool GroupDrafts::DrawsFromModel(const GenerationParams& params) {
  return params.speculate->method == SpeculationMethod::kDraft &&
         params.speculate->mode == SpeculationMode::kRejection &&
         DrawsAtRandom(params);
}

bool GroupDrafts::MayPay(const GenerationParams& params) {
  if (params.speculate.has_value() && params.speculate->always_drafts) {
    return true;
  }
  constexpr double kAlwaysAccepted[] = {1.0};
  const int64_t num_rows = IsBeamSearch(params) ? NumSequences(params) : 1;
  return BestDraftLength(kAlwaysAccepted, {.row = kRowCost * num_rows}) > 0;
}

int GroupDrafts::max_asked_tokens() const {
  int count = 0;
  for (const RequestedDraft& asked : asked_) {
    count = std::max(count, asked.num_tokens);
  }
  return count;
}

absl::Status GroupDrafts::Validate(std::span<const DraftedTokens> drafts,
                                   int vocab_size) const {
  for (size_t i = 0; i < asked_.size(); ++i) {
    const DraftedTokens& draft = drafts[i];
    const size_t num_logits =
        are_drawn() ? draft.tokens.size() * vocab_size : 0;
    if (!draft.logits.empty() && draft.logits.size() != num_logits) {
      return Internal("a step drafted ", draft.tokens.size(), " tokens with ",
                      draft.logits.size(), " logits");
    }
    RETURN_IF_ERROR(ValidateTokens(draft.tokens, asked_[i], vocab_size));
    for (const DraftPath& path : draft.paths) {
      RETURN_IF_ERROR(ValidateTokens(path.tokens, asked_[i], vocab_size));
    }
  }
  return absl::OkStatus();
}

void GroupDrafts::Take(std::span<DraftedTokens> drafts) {
  const bool has_drafts = std::ranges::any_of(drafts, [](const auto& draft) {
    return !draft.tokens.empty() || !draft.paths.empty();
  });
  const bool is_behind = std::ranges::any_of(drafts, &DraftedTokens::is_behind);
  is_counted_ = !has_drafts || is_behind;
  if (is_counted_) CountAnswer(!is_behind);
  ready_.assign(asked_.empty() ? 0 : asked_.back().rank + 1, {});
  for (size_t i = 0; i < asked_.size(); ++i) {
    ready_[asked_[i].rank] = std::move(drafts[i]);
  }
  state_ = State::kReady;
}

void GroupDrafts::EndAnswer(bool verifies) {
  if (!is_counted_) {
    // Pages are released when other requests end.
    constexpr int kMaxUnverified = 1;  // delays one step at most
    num_empty_answers_ = std::min(num_empty_answers_, kMaxUnverified);
    CountAnswer(!verifies);
  }
  ready_.clear();  // and its logits
  state_ = State::kIdle;
}

void GroupDrafts::CountAnswer(bool is_empty) {
  num_empty_answers_ = is_empty ? num_empty_answers_ + 1 : 0;
  if (num_empty_answers_ < 2) return;
  const int doubled = 1 << std::min(num_empty_answers_ - 2, kMaxDoublings);
  num_steps_alone_ = 1 + doubled;  // the current step counts too
}

void GroupDrafts::CountStep() {
  num_steps_alone_ = std::max(0, num_steps_alone_ - 1);
}

bool GroupDrafts::HasHistory(int rank) const {
  std::vector<TokenId> draft;
  drafters_[rank]->Draft(/*max_tokens=*/1, &draft);
  return !draft.empty();
}

std::vector<std::vector<TokenId>> GroupDrafts::Draft(
    std::span<const int> max_tokens, int num_tokens) const {
  std::vector<std::vector<TokenId>> drafts(max_tokens.size());
  for (size_t rank = 0; rank < max_tokens.size(); ++rank) {
    const int count = std::min({num_tokens_, max_tokens[rank], num_tokens});
    if (count <= 0) continue;
    if (has_answer()) {
      if (rank < ready_.size()) drafts[rank] = ready_[rank].tokens;
      if (std::ssize(drafts[rank]) > count) drafts[rank].resize(count);
    } else if (reads_history()) {
      drafters_[rank]->Draft(count, &drafts[rank]);
    }
    num_tokens -= static_cast<int>(drafts[rank].size());
  }
  return drafts;
}

std::vector<BeamPath> GroupDrafts::DraftPaths(int num_beams,
                                              int max_tokens) const {
  std::vector<BeamPath> paths;
  const int count = std::min(num_tokens_, max_tokens);
  for (int rank = 0; rank < num_beams && count > 0; ++rank) {
    if (!is_by_model_) {
      BeamPath& chain = paths.emplace_back(BeamPath{.rank = rank});
      drafters_[rank]->Draft(count, &chain.path.tokens);
    } else if (rank < std::ssize(ready_) && has_answer()) {
      for (const DraftPath& path : ready_[rank].paths) {
        paths.push_back({rank, path});
        if (std::ssize(path.tokens) > count) {
          paths.back().path.tokens.resize(count);
        }
      }
    }
  }
  return paths;
}

std::vector<DraftLogits> GroupDrafts::Logits(
    std::span<const std::vector<TokenId>> drafts) const {
  if (!are_drawn() || !has_answer()) return {};
  std::vector<DraftLogits> logits(drafts.size());
  for (size_t rank = 0; rank < drafts.size(); ++rank) {
    if (drafts[rank].empty()) continue;
    if (ready_[rank].logits.empty()) return {};
    logits[rank] = ready_[rank].logits;
  }
  return logits;
}

void GroupDrafts::Record(std::span<const int> num_drafted,
                         std::span<const int> num_accepted,
                         std::span<const int> num_tokens) {
  if (!can_draft()) return;
  CountStep();
  for (size_t rank = 0; rank < num_drafted.size(); ++rank) {
    length_.Record(num_drafted[rank], num_accepted[rank]);
    const int num_kept = std::min(num_accepted[rank], num_tokens[rank]);
    figures_.Record(num_drafted[rank], num_kept, num_tokens[rank]);
    num_drafted_ += num_drafted[rank];
    num_accepted_ += num_kept;
  }
  num_tokens_ = length_.Next(Cost());
}

void GroupDrafts::RecordPaths(const DraftReplay* replay) {
  if (!can_draft()) return;
  CountStep();
  if (replay != nullptr) {
    length_.Record(replay->num_steps_drafted(), replay->num_steps_followed());
    constexpr double kNewest = 0.2;  // weight in the average
    rows_per_token_ +=
        kNewest * (replay->num_tokens_per_step() - rows_per_token_);
    figures_.Record(replay->num_steps_drafted(), replay->num_steps_followed(),
                    replay->num_steps_followed() + 1);
    num_drafted_ += replay->num_tokens_drafted();
    num_accepted_ += replay->num_tokens_followed();
  }
  num_tokens_ = length_.Next(Cost());
}

void GroupDrafts::RecordUnverified(int num_drafted) {
  if (!can_draft()) return;
  CountStep();
  length_.RecordUnverified(num_drafted);
  num_tokens_ = length_.Next(Cost());
}

void GroupDrafts::Advance(std::span<const int> parents,
                          std::span<const std::vector<TokenId>> tokens) {
  std::vector<int> num_left(drafters_.size());  // children without a drafter
  for (const int parent : parents) ++num_left[parent];
  std::vector<std::unique_ptr<Drafter>> next;
  for (size_t rank = 0; rank < parents.size(); ++rank) {
    std::unique_ptr<Drafter>& parent = drafters_[parents[rank]];
    const bool is_last = --num_left[parents[rank]] == 0;
    next.push_back(is_last ? std::move(parent) : parent->Fork());
    next.back()->Append(tokens[rank]);
  }
  drafters_ = std::move(next);
}

}  // namespace espalier
