// PushdownConstraint: a language of texts by a PushdownAutomaton as the
// constraint of a request, as TextConstraint is that of a ByteAutomaton. A
// state is the number of a configuration (pushdown_configurations.h).
//
// The tokens of a state are listed when the state is first asked for. Equal
// lists are one.
//
// The numbers of tokens that a text still needs are upper bounds
// (pushdown_costs.h): each sequence ends within its room, in the language, but
// near the end a token may be illegal after which the text could be completed.
//
// Thread safety: any thread may read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/constraint_tables.h"
#include "base/ids.h"
#include "base/pushdown_tables.h"
#include "constrain/compile_budget.h"
#include "constrain/language_constraint.h"
#include "constrain/pushdown_arrays.h"
#include "constrain/pushdown_automaton.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/token_constraint.h"
#include "constrain/token_list_set.h"
#include "constrain/token_mask.h"

namespace espalier {

class PushdownConstraint final : public LanguageConstraint,
                                 private PushdownPlaces {
 public:
  struct Options {
    // Ids that end a sequence, ascending, each once. None adds text.
    std::vector<TokenId> end_ids = {};
    // As of max_list_bytes().
    int64_t max_list_bytes = int64_t{256} << 20;
    CompileLimits limits = {};
    // As for TokenConstraint::Make.
    bool opens_text = true;
    // The field that an error of a request names.
    std::string name = "constraint.grammar";
  };
  // Errors: kInvalidArgument if the vocabulary can spell no text of the
  // language, or lacks a byte and the steps find none; if the empty text alone
  // is in it and no id ends it; if the limits are exceeded; or if the language
  // is too ambiguous.
  static absl::StatusOr<std::shared_ptr<const PushdownConstraint>> Make(
      std::shared_ptr<const PushdownAutomaton> automaton,
      std::shared_ptr<const TokenVocabulary> vocabulary, Options options);

  State start() const override {
    return options_.opens_text ? kOpening : StateOf(Configurations::kStart);
  }
  State Advance(State state, TokenId token) const override;
  Legal LegalTokens(State state, int32_t room) const override;
  bool IsListed(State state, int32_t room) const override;
  bool TryList(State state, int32_t room, int64_t max_effort) const override;
  bool accepts(State state, int32_t room) const override {
    return ends(state, room) && (state == kEnded || AcceptsText(state));
  }
  bool ends(State state, int32_t room) const override {
    return state == kEnded || MinMore(state) > room;
  }
  int64_t MaxLegal(int64_t num_sequences) const override {
    return num_sequences * vocabulary_->inside.vocab_size();
  }
  int64_t MaxLast(int64_t num_sequences) const override {
    return num_sequences * max_last_;
  }
  // None if the next byte does not tell what a text does (PushdownArrays).
  std::optional<ConstraintTables> tables() const override;
  void AppendForcedBytes(State state, size_t max_bytes,
                         std::string* bytes) const override;
  std::string_view BytesOf(State state, TokenId token) const override {
    if (state == kEnded || token < 0 ||
        token >= vocabulary_->inside.vocab_size()) {
      return {};
    }
    return TrieAt(state).BytesOf(token);
  }
  int64_t StateBytes(State state) const override {
    return configurations_.num_bytes_of(ConfigurationOf(state));
  }
  int64_t max_list_bytes() const override { return options_.max_list_bytes; }

  int32_t MinRoom(bool is_empty_text_legal) const override;
  int64_t num_bytes() const override;
  bool is_full() const override;

  // Returns the effort of all lists so far, in units of TryList.
  int64_t total_effort() const { return total_effort_; }

  const PushdownConfigurations& configurations() const {
    return configurations_;
  }

 private:
  using Configurations = PushdownConfigurations;
  // Bound the time of a list, which other requests wait for: ways to read the
  // text, of all configurations within the tokens, and steps of the transitions
  // between them, each of some nanoseconds. Transitions of few steps are not
  // counted, because the vocabulary has only so many.
  static constexpr int64_t kMaxWaysOfList = 1 << 18;
  static constexpr int64_t kMaxStepsOfList = 1 << 21;
  static constexpr int64_t kFewSteps = 64;

  // After an end id; before the text; after a dropped space there. From kFirst
  // on the states are configurations.
  static constexpr State kEnded = 0;
  static constexpr State kOpening = 1;
  static constexpr State kAfterSpace = 2;
  static constexpr State kFirst = 3;

  // Why a language is too ambiguous for the tokens of a state to be found.
  enum class Excess : uint8_t { kNone, kWays, kWaysOfList, kSteps, kBytes };
  static constexpr int kNumExcesses = 5;
  // A walk along the tokens that may follow a state.
  struct Walk {
    Excess excess = Excess::kNone;
    bool is_complete = true;         // false: it took more than max_effort
    int64_t effort = 0;              // bytes read, and steps of transitions
    std::vector<State> states = {};  // configurations that tokens lead to
  };
  struct WalkLimits {
    // False: all configurations are made, and were within the bounds before.
    bool is_bounded = true;
    int64_t max_effort = std::numeric_limits<int64_t>::max();
  };
  // Tokens of a state with room for some.
  struct Found {
    TokenMask mask;
    int num_last = 0;  // as of TokenList
    // As for TokenConstraint::LegalTokens.
    std::vector<int32_t> needs = {};
    Walk walk = {};
  };
  struct Entry {
    const TokenList* list = nullptr;  // null: not known
    std::vector<int32_t> needs;
    std::vector<State> states;
    int64_t effort = 0;
    Excess excess = Excess::kNone;
  };

  PushdownConstraint(std::shared_ptr<const PushdownAutomaton> automaton,
                     PushdownCosts costs,
                     std::shared_ptr<const TokenVocabulary> vocabulary,
                     Options options);

  // PushdownPlaces:
  int32_t PlaceAfter(int32_t state, TokenId token) const override {
    return Advance(state, token);
  }
  bool EndsAt(int32_t state, int32_t room) const override {
    return ends(state, room);
  }
  bool IsLegal(int32_t state, int32_t room, TokenId token) const override;
  void Find(int32_t state, PushdownPlace* place) const override;

  static State StateOf(Configurations::State configuration) {
    return configuration + kFirst;
  }
  static Configurations::State ConfigurationOf(State state) {
    return state < kFirst ? Configurations::kStart : state - kFirst;
  }
  bool AcceptsText(State state) const {
    return configurations_.accepts(ConfigurationOf(state));
  }
  // The fewest tokens, at least one, to where the text may end; kNever if none
  // may follow.
  int32_t MinMore(State state) const {
    if (state == kOpening) return more_of_opening_;
    if (state == kAfterSpace) return more_after_space_;
    return configurations_.min_more(ConfigurationOf(state));
  }
  const TokenTrie& TrieAt(State state) const;
  bool IsDroppedSpace(TokenId token) const;
  class Follower;
  // As TokenTrie::AddLegal, with dropped spaces. The tokens are not known if
  // the configurations that it meets are too many, or take too many steps or
  // bytes.
  template <typename End>
  Walk AddLegal(State state, const WalkLimits& limits, const End& end,
                TokenMask* mask) const;
  static absl::Status TooAmbiguous(absl::StatusCode code, Excess excess,
                                   const Options& options);
  void CountFromOpening();
  int64_t CountLastTokens() const;

  // Returns the state whose lists it has: counts far from limits have one list.
  State ListedState(State state) const {
    return state < kFirst
               ? state
               : StateOf(configurations_.Similar(ConfigurationOf(state)));
  }
  // Returns the room with which `listed`, of ListedState, has the tokens that
  // `state` has with `room`.
  int32_t RoomOf(State listed, State state, int32_t room) const {
    return AddCosts(room, MinMore(listed) - MinMore(state));
  }
  Found Find(State state, int32_t room, const WalkLimits& limits) const;
  // Returns null if there is none yet.
  const Entry* FindEntry(State state) const;
  // Makes the entry unless it takes more than `max_effort`, and then returns
  // null.
  const Entry* EntryWithin(State state, int64_t max_effort) const;
  const Entry& EntryOf(State state) const {
    return *EntryWithin(state, std::numeric_limits<int64_t>::max());
  }
  // True if TryList did not suffice with as much before.
  bool HasFailed(State state, int64_t max_effort) const;
  // True if room leaves out some of the entry's tokens: NearList has the rest.
  static bool IsNear(const Entry& entry, int32_t room) {
    return !entry.needs.empty() && room <= entry.needs.back();
  }
  static std::pair<State, int64_t> NearKey(State state, const Entry& entry,
                                           int32_t room);
  const TokenList* NearList(State state, const Entry& entry,
                            int32_t room) const;
  int64_t NumListBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  const Options options_;
  const Configurations configurations_;
  std::vector<TokenId> dropped_spaces_;  // ascending
  int32_t more_of_opening_ = kNever;
  int32_t more_after_space_ = kNever;
  int64_t max_last_ = 0;
  std::array<absl::Status, kNumExcesses> too_ambiguous_;  // constant
  mutable std::once_flag arrays_once_;
  mutable std::unique_ptr<const PushdownArrays> arrays_;  // or null
  mutable std::atomic<int64_t> num_array_bytes_ = 0;
  mutable std::atomic<int64_t> total_effort_ = 0;
  mutable std::mutex mutex_;
  // An entry stays where it is.
  mutable std::unordered_map<State, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // The most that TryList did not suffice for, by states without an entry; some
  // thousand.
  mutable std::unordered_map<State, int64_t> failed_efforts_
      ABSL_GUARDED_BY(mutex_);
  // By state and by the number of its needs that there is room for.
  mutable std::map<std::pair<State, int64_t>, const TokenList*> near_
      ABSL_GUARDED_BY(mutex_);
  mutable TokenListSet lists_;
  // Bytes kept beside the lists.
  mutable int64_t num_kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
