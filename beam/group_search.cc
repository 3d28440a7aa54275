#include "beam/group_search.h"

#include <optional>
#include <span>
#include <utility>

#include "beam/strategy/make_strategy.h"
#include "beam/strategy/selection_options.h"

namespace espalier {
namespace {

// Unset unless the tokens report it.
std::optional<float> SumOfLegalMass(std::span<const TokenLogProb> tokens) {
  double sum = 0;
  for (const TokenLogProb& token : tokens) {
    if (!token.legal_log_mass) return {};
    sum += *token.legal_log_mass;
  }
  return static_cast<float>(sum);
}

}  // namespace

GroupSearch::GroupSearch(const Request& request, const SelectionParams& params,
                         std::shared_ptr<const Constraint> constraint,
                         std::shared_ptr<const RequestText> text)
    : reports_logprobs_(params.num_logprobs >= 0),
      is_constrained_(constraint != nullptr) {
  const bool draws_only = KindOf(request.params) == SelectionKind::kDraws &&
                          constraint == nullptr && !reports_logprobs_;
  strategy_ =
      MakeStrategy(request.params, std::move(constraint), std::move(text));
  if (draws_only) draws_only_ = static_cast<SampleStrategy*>(strategy_.get());
}

std::vector<TokenId> GroupSearch::LastTokens(int rank, int num_tokens) const {
  std::vector<TokenId> tokens(num_tokens);
  TokenTree::Node node = strategy_->node(rank);
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    *token = strategy_->tree().token(node);
    node = strategy_->tree().parent(node);
  }
  return tokens;
}

bool GroupSearch::HaveOneLength(size_t num_sequences) const {
  for (size_t rank = 1; rank < num_sequences; ++rank) {
    if (LengthOf(static_cast<int>(rank)) != LengthOf(0)) return false;
  }
  return true;
}

std::vector<ConstraintPlace> GroupSearch::UnlistedPlaces() const {
  // Some tenths of a millisecond in all, unless each takes nearly too long.
  constexpr int64_t kMaxEffort = 1 << 13;
  constexpr int kMaxTries = 16;
  constexpr int kMaxFailures = 4;
  const Constraint& constraint = *strategy_->stopping_criteria().constraint();
  std::vector<ConstraintPlace> places;
  int num_tries = 0;
  int num_failures = 0;
  strategy_->ForEachProgress([&](const StoppingCriteria::Progress& progress) {
    const auto& [state, room, _] = progress;
    if (constraint.IsListed(state, room)) return;
    if (num_failures < kMaxFailures && num_tries++ < kMaxTries) {
      if (constraint.TryList(state, room, kMaxEffort)) return;
      ++num_failures;
    }
    places.push_back(StoppingCriteria::PlaceOf(progress));
  });
  return places;
}

void GroupSearch::FinishLive(FinishReason reason) {
  strategy_->FinishLive(reason);
  deadline_passed_ = reason == FinishReason::kDeadline;
}

void GroupSearch::FillResult(Result* result) const {
  result->hypotheses = strategy_->Hypotheses();
  result->threshold = strategy_->threshold();
  result->deadline_passed = deadline_passed_;
  for (Hypothesis& hypothesis : result->hypotheses) {
    if (reports_logprobs_) {
      hypothesis.logprobs = logprobs_.Of(hypothesis.tokens);
      hypothesis.legal_log_mass = SumOfLegalMass(hypothesis.logprobs);
    }
    result->usage.num_generated_tokens += hypothesis.tokens.size();
  }
}

}  // namespace espalier
