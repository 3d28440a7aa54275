#include "beam/group_drafts.h"

#include <algorithm>
#include <utility>

#include "beam/selection_options.h"

namespace espalier {
namespace {

DraftLengthOptions LengthOptions(const GenerationParams& params) {
  DraftLengthOptions options;
  if (params.speculate.has_value()) {
    options.max_tokens = SaturateToInt(params.speculate->num_tokens);
  }
  return options;
}

}  // namespace

GroupDrafts::GroupDrafts(const GenerationParams& params,
                         std::unique_ptr<Drafter> drafter)
    : length_(LengthOptions(params)) {
  if (!params.speculate.has_value() || IsBeamSearch(params)) return;
  is_by_model_ = params.speculate->method == SpeculationMethod::kDraft;
  drafts_count_ = params.speculate->mode == SpeculationMode::kRejection &&
                  DrawsAtRandom(params);
  if (drafter != nullptr) drafters_.push_back(std::move(drafter));
  if (can_draft()) num_tokens_ = length_.Next(Cost());
}

void GroupDrafts::Take(std::span<DraftedTokens> drafts) {
  ready_.assign(asked_.empty() ? 0 : asked_.back() + 1, {});
  for (size_t i = 0; i < asked_.size(); ++i) {
    ready_[asked_[i]] = std::move(drafts[i]);
  }
  state_ = State::kReady;
}

std::vector<std::vector<TokenId>> GroupDrafts::Draft(
    std::span<const int> max_tokens, int num_tokens) const {
  std::vector<std::vector<TokenId>> drafts(max_tokens.size());
  for (size_t rank = 0; rank < max_tokens.size(); ++rank) {
    const int count = std::min({num_tokens_, max_tokens[rank], num_tokens});
    if (count <= 0) continue;
    if (!is_by_model_) {
      drafters_[rank]->Draft(count, &drafts[rank]);
    } else if (rank < ready_.size()) {
      drafts[rank] = ready_[rank].tokens;
      if (std::ssize(drafts[rank]) > count) drafts[rank].resize(count);
    }
    num_tokens -= static_cast<int>(drafts[rank].size());
  }
  return drafts;
}

std::shared_ptr<const std::vector<float>> GroupDrafts::Logits(
    std::span<const std::vector<TokenId>> drafts) const {
  if (!are_drawn()) return nullptr;
  auto logits = std::make_shared<std::vector<float>>();
  for (size_t rank = 0; rank < drafts.size(); ++rank) {
    if (drafts[rank].empty()) continue;
    const DraftedTokens& draft = ready_[rank];
    if (draft.logits.empty()) return nullptr;
    const size_t vocab_size = draft.logits.size() / draft.tokens.size();
    logits->insert(logits->end(), draft.logits.begin(),
                   draft.logits.begin() + drafts[rank].size() * vocab_size);
  }
  return logits;
}

void GroupDrafts::Record(std::span<const std::vector<TokenId>> drafted,
                         std::span<const int> accepted) {
  if (!can_draft()) return;
  for (size_t rank = 0; rank < drafted.size(); ++rank) {
    const int count = static_cast<int>(drafted[rank].size());
    length_.Record(count, accepted[rank]);
    figures_.Record(count, accepted[rank]);
    num_drafted_ += count;
    num_accepted_ += accepted[rank];
  }
  num_tokens_ = length_.Next(Cost());
}

void GroupDrafts::Advance(std::span<const int> parents,
                          std::span<const std::vector<TokenId>> tokens) {
  if (drafters_.empty()) return;
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
