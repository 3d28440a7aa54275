// StoppingCriteria: the tokens that may follow a live sequence, and those that
// end it, with the finish reason:
//
//   constraint          the sequence is in the language ("stop", or "eos" by
//                       an EOS id). No id ends it otherwise; it also continues
//                       if it begins another one that max_new_tokens has room
//                       for. No token may follow after which none has
//   EOS id              "eos"; "stop" if the text ends with a stop string that
//                       is complete only because nothing follows
//   stop id             "stop"
//   stop string         "stop": the token completes one in the text
//
// Does not check max_new_tokens otherwise: the strategy ends a sequence there.
//
// The state of a sequence is its Progress, a value that is copied when a beam
// forks.
//
// Belongs to its group's strand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>

#include "absl/status/status.h"
#include "base/constraint_state.h"
#include "base/constraint_tables.h"
#include "base/ids.h"
#include "base/shared_list.h"
#include "beam/strategy/request_text.h"
#include "constrain/constraint.h"
#include "exec_request/step_plan.h"
#include "request/generation_params.h"
#include "request/request.h"
#include "text/text_stream.h"

namespace espalier {

class StoppingCriteria {
 public:
  struct Progress {
    Constraint::State state = 0;     // if there is a constraint
    int32_t room = 0;                // for tokens, in this case
    std::optional<TextStream> text;  // if there are stop strings
  };
  struct Outcome {
    std::optional<FinishReason> hit;  // unset: it does not end
    bool goes_on = true;              // possible in both cases
  };

  // `params` as ValidateParams leaves them; the others are built from these
  // params. A null constraint allows everything. `text` is required if there
  // are stop strings.
  explicit StoppingCriteria(
      const GenerationParams& params,
      std::shared_ptr<const Constraint> constraint = nullptr,
      std::shared_ptr<const RequestText> text = nullptr);
  // Not copyable: parts of a strategy point to it.
  StoppingCriteria(const StoppingCriteria&) = delete;
  StoppingCriteria& operator=(const StoppingCriteria&) = delete;

  // Returns the progress before the first token.
  Progress Begin() const;

  // Appends `token` to a sequence, updating its progress, and returns the
  // outcome.
  // REQUIRES: the token may follow.
  Outcome Feed(TokenId token, Progress* progress) const {
    return IsIdle(token) ? Outcome() : FeedAny(token, progress);
  }

  // True if `token` ends no sequence, and Feed has no other effect.
  bool IsIdle(TokenId token) const { return is_by_token() && !IsEnd(token); }

  // Returns the finish reason of a sequence at the length limit: "stop" if its
  // final text, the bytes of an incomplete character, completes a stop string.
  FinishReason AtFullLength(const Progress& progress) const {
    return AtEnd(progress, FinishReason::kLength);
  }
  // As above, for a sequence that ends by `reason`.
  FinishReason AtEnd(const Progress& progress, FinishReason reason) const;

  // Returns the tokens that may follow. REQUIRES: restricts().
  Constraint::Legal LegalTokens(const Progress& progress) const {
    const Constraint::Legal legal =
        constraint_->LegalTokens(progress.state, progress.room);
    if (legal.tokens.data() != last_list_) CountList(legal.tokens);
    if (!legal.states.empty()) CountStates(progress.state, legal.states);
    if (legal.error != nullptr) error_ = legal.error;
    return legal;
  }
  // True if `token` is one of them. REQUIRES: restricts().
  bool MayFollow(TokenId token, const Progress& progress) const {
    if (tables_.has_value()) {
      return IsLegalToken(*tables_, progress.state, progress.room, token);
    }
    return std::ranges::binary_search(LegalTokens(progress).tokens, token);
  }
  // Returns the number of tokens that no sequence exceeds.
  int32_t max_length() const { return max_length_; }
  const std::shared_ptr<const Constraint>& constraint() const {
    return constraint_;
  }
  // Makes the list of LegalTokens(progress), unless it takes more than some
  // milliseconds; then returns false, whether or not it was made before: by the
  // language alone. REQUIRES: restricts().
  bool TryList(const Progress& progress) const {
    constexpr int64_t kMaxEffort = 1 << 19;
    return constraint_->TryList(progress.state, progress.room, kMaxEffort);
  }
  static ConstraintPlace PlaceOf(const Progress& progress) {
    return {progress.state, progress.room};
  }
  // Errors: kResourceExhausted, which is permanent, if the different lists that
  // LegalTokens has returned, and their states, take more memory than the
  // constraint lets one request need. What other requests need does not count.
  // As Constraint::Legal::error, if LegalTokens has returned one.
  absl::Status CheckMemory() const {
    if (error_ != nullptr) return *error_;
    return num_list_bytes_ <= max_list_bytes_ ? absl::OkStatus()
                                              : TooManyLists();
  }

  // True if all tokens may follow, and a sequence ends only by a token of
  // token_ids().
  bool is_by_token() const { return constraint_ == nullptr && !has_stops(); }
  // True if a sequence's last token, and its state if there is a constraint
  // with tables, say whether it ends.
  bool ends_by_state() const {
    return !has_stops() && (constraint_ == nullptr || tables_.has_value());
  }
  // True if there is a constraint.
  bool restricts() const { return constraint_ != nullptr; }

  // True if `token` is an EOS or stop id.
  bool IsEnd(TokenId token) const {
    return std::ranges::binary_search(token_ids_, token);
  }
  // EOS and stop ids, ascending, without duplicates.
  std::span<const TokenId> token_ids() const { return token_ids_; }

 private:
  bool has_stops() const { return text_ != nullptr; }
  // Feed for a token of any kind.
  Outcome FeedAny(TokenId token, Progress* progress) const;
  Outcome FeedConstrained(TokenId token, Progress* progress) const;
  void CountList(std::span<const TokenId> list) const;
  // `states` of the list of `state`.
  void CountStates(Constraint::State state,
                   std::span<const Constraint::State> states) const;
  void CountState(Constraint::State state) const;
  absl::Status TooManyLists() const;

  const SharedList<TokenId> shared_token_ids_;
  const std::span<const TokenId> token_ids_;  // its elements, read at each step
  const std::shared_ptr<const Constraint> constraint_;  // or null
  const std::optional<ConstraintTables> tables_;        // those of constraint_
  const std::shared_ptr<const RequestText> text_;       // null: no stop strings
  const SharedList<TokenId> eos_token_ids_;             // ascending
  const int32_t max_new_tokens_;
  const int32_t max_length_;
  // See CheckMemory.
  const int64_t max_list_bytes_;
  mutable int64_t num_list_bytes_ = 0;
  mutable const TokenId* last_list_ = nullptr;
  mutable std::unordered_set<const TokenId*> lists_;  // returned so far
  mutable std::unordered_set<Constraint::State> listed_states_;
  mutable std::unordered_set<Constraint::State> states_;  // kept for them
  mutable const absl::Status* error_ = nullptr;           // the constraint's
};

// Checks that the request's stop strings, which ValidateParams has validated,
// have a text to be found in. `tokenizer` may be null.
// Errors: kInvalidArgument naming the field, if there is no text.
absl::Status CheckStops(const GenerationParams& params,
                        const Tokenizer* tokenizer);

}  // namespace espalier
