#include "beam/strategy/stopping_criteria.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/field_error.h"
#include "base/status.h"
#include "base/wording.h"
#include "beam/strategy/selection_options.h"

namespace espalier {
namespace {

// True if the text, followed by `last` alone if given, completes a stop string.
bool StopsAtEnd(TextStream text, std::optional<TokenId> last) {
  if (last && text.Feed(*last).stop_idx) return true;
  return text.Finish().stop_idx.has_value();
}

}  // namespace

StoppingCriteria::StoppingCriteria(const GenerationParams& params,
                                   std::shared_ptr<const Constraint> constraint,
                                   std::shared_ptr<const RequestText> text)
    : shared_token_ids_(FinishingTokenIds(params)),
      token_ids_(shared_token_ids_.items()),
      constraint_(std::move(constraint)),
      tables_(constraint_ == nullptr ? std::nullopt : constraint_->tables()),
      text_(params.stop.empty() ? nullptr : std::move(text)),
      eos_token_ids_(DistinctEosTokenIds(params)),
      max_new_tokens_(SaturateToInt(params.max_new_tokens.value_or(0))),
      max_length_(constraint_ == nullptr
                      ? max_new_tokens_
                      : std::min(max_new_tokens_, constraint_->max_length())),
      max_list_bytes_(constraint_ == nullptr
                          ? std::numeric_limits<int64_t>::max()
                          : constraint_->max_list_bytes()) {
  CHECK(params.stop.empty() || has_stops()) << "stops need a text";
}

StoppingCriteria::Progress StoppingCriteria::Begin() const {
  Progress progress;
  if (restricts()) {
    progress.state = constraint_->start();
    progress.room = max_new_tokens_;
  }
  if (has_stops()) progress.text = text_->Begin();
  return progress;
}

StoppingCriteria::Outcome StoppingCriteria::FeedAny(TokenId token,
                                                    Progress* progress) const {
  if (restricts()) return FeedConstrained(token, progress);
  if (std::ranges::binary_search(token_ids_, token)) {
    const bool is_eos = std::ranges::binary_search(eos_token_ids_, token);
    const bool is_cut = has_stops() && StopsAtEnd(*progress->text, token);
    return {is_eos && !is_cut ? FinishReason::kEos : FinishReason::kStop,
            false};
  }
  if (has_stops() && progress->text->Feed(token).stop_idx.has_value()) {
    return {FinishReason::kStop, false};
  }
  return {};
}

FinishReason StoppingCriteria::AtEnd(const Progress& progress,
                                     FinishReason reason) const {
  const bool is_cut = has_stops() && StopsAtEnd(*progress.text, std::nullopt);
  return is_cut ? FinishReason::kStop : reason;
}

StoppingCriteria::Outcome StoppingCriteria::FeedConstrained(
    TokenId token, Progress* progress) const {
  progress->state = constraint_->Advance(progress->state, token);
  CHECK(progress->state != Constraint::kNone)
      << "token " << token << " may not follow";
  if (tables_.has_value() && tables_->has_stacks()) {
    CountState(progress->state);
  }
  --progress->room;
  Outcome outcome;
  outcome.goes_on = !constraint_->ends(progress->state, progress->room);
  if (constraint_->accepts(progress->state, progress->room)) {
    const bool is_eos = std::ranges::binary_search(eos_token_ids_, token);
    const bool is_cut =
        is_eos && has_stops() && StopsAtEnd(*progress->text, token);
    outcome.hit = is_eos && !is_cut ? FinishReason::kEos : FinishReason::kStop;
  } else if (has_stops() && progress->text->Feed(token).stop_idx.has_value()) {
    return {FinishReason::kStop, false};
  }
  return outcome;
}

void StoppingCriteria::CountList(std::span<const TokenId> list) const {
  last_list_ = list.data();
  if (max_list_bytes_ == std::numeric_limits<int64_t>::max()) return;
  if (!lists_.insert(list.data()).second) return;
  num_list_bytes_ += static_cast<int64_t>(list.size_bytes());
}

void StoppingCriteria::CountStates(
    Constraint::State state, std::span<const Constraint::State> states) const {
  if (!listed_states_.insert(state).second) return;
  for (const Constraint::State kept : states) CountState(kept);
}

void StoppingCriteria::CountState(Constraint::State state) const {
  if (!states_.insert(state).second) return;
  num_list_bytes_ += constraint_->StateBytes(state);
}

absl::Status StoppingCriteria::TooManyLists() const {
  return MarkPermanent(MakeFieldError(
      absl::StatusCode::kResourceExhausted,
      "`constraint` must need lists of legal tokens of at most ",
      MemorySize{max_list_bytes_}, " for one request, and has needed ",
      MemorySize{num_list_bytes_}));
}

absl::Status CheckStops(const GenerationParams& params,
                        const Tokenizer* tokenizer) {
  if (params.stop.empty() || tokenizer != nullptr) return absl::OkStatus();
  return InvalidField(
      "`stop` must be empty without a tokenizer, which makes the text to "
      "find it in",
      Got(Pluralize(params.stop.size(), "string")));
}

}  // namespace espalier
