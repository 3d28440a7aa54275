#include "constrain/pushdown_constraint.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "base/field_error.h"
#include "base/status.h"
#include "constrain/forced_bytes.h"

namespace espalier {

absl::StatusOr<std::shared_ptr<const PushdownConstraint>>
PushdownConstraint::Make(std::shared_ptr<const PushdownAutomaton> automaton,
                         std::shared_ptr<const TokenVocabulary> vocabulary,
                         Options options) {
  CompileBudget budget(options.limits);
  if (automaton->has_least() && !vocabulary->inside.has_all_bytes()) {
    return InvalidArgument(
        "strings of so many characters at least need a vocabulary with a token "
        "of each byte");
  }
  ASSIGN_OR_RETURN(
      PushdownCosts costs,
      CountPushdownCosts(*automaton, vocabulary->suffixes, &budget));
  std::shared_ptr<PushdownConstraint> constraint(
      new PushdownConstraint(std::move(automaton), std::move(costs),
                             std::move(vocabulary), std::move(options)));
  const auto too_ambiguous = [&](Excess excess) {
    return TooAmbiguous(absl::StatusCode::kInvalidArgument, excess,
                        constraint->options_);
  };
  if (!constraint->configurations_.has_start()) {
    return too_ambiguous(Excess::kWays);
  }
  constraint->CountFromOpening();
  const State start = constraint->start();
  const Entry& first = constraint->EntryOf(start);
  if (first.list == nullptr) return too_ambiguous(first.excess);
  if (constraint->MinMore(start) == kNever) {
    if (!constraint->AcceptsText(start)) {
      // States that tokens can complete may seem to be others.
      if (!constraint->configurations_.costs().is_exact &&
          !constraint->vocabulary_->inside.has_all_bytes()) {
        return InvalidArgument(
            "finding the states that tokens can complete takes more than ",
            constraint->options_.limits.max_steps, " steps, the limit");
      }
      return InvalidArgument(
          "the vocabulary can spell no text of the language");
    }
    if (constraint->options_.end_ids.empty()) {
      return InvalidArgument(
          "the empty text alone is in the language, and no EOS id ends it");
    }
  }
  return constraint;
}

absl::Status PushdownConstraint::TooAmbiguous(absl::StatusCode code,
                                              Excess excess,
                                              const Options& options) {
  const auto make = [&](const auto&... what) {
    return MakeFieldError(
        code, FieldName{options.name}, " must not be so ambiguous: ", what...,
        "; write once what alternatives have in common at their beginnings, "
        "and let no part be read as one of several repetitions");
  };
  constexpr std::string_view kTexts = "the texts within the next token ";
  switch (excess) {
    case Excess::kNone:
    case Excess::kWays:
      return make(
          "a text may be read in more than ", Configurations::kMaxWays,
          " ways at once, or following these by a byte takes more than ",
          Configurations::kMaxSteps, " steps");
    case Excess::kWaysOfList:
      return make(kTexts, "may be read in more than ", kMaxWaysOfList, " ways");
    case Excess::kSteps:
      return make("following ", kTexts, "takes more than ", kMaxStepsOfList,
                  " steps");
    case Excess::kBytes:
      return make("following ", kTexts, "takes more than ",
                  MemorySize{options.max_list_bytes});
  }
  return Internal("unknown excess");
}

PushdownConstraint::PushdownConstraint(
    std::shared_ptr<const PushdownAutomaton> automaton, PushdownCosts costs,
    std::shared_ptr<const TokenVocabulary> vocabulary, Options options)
    : vocabulary_(std::move(vocabulary)),
      options_(std::move(options)),
      configurations_(std::move(automaton), std::move(costs),
                      vocabulary_->suffixes.max_depth()) {
  for (int i = 0; i < kNumExcesses; ++i) {
    too_ambiguous_[i] =
        MarkPermanent(TooAmbiguous(absl::StatusCode::kResourceExhausted,
                                   static_cast<Excess>(i), options_));
  }
  for (TokenId token = 0; token < vocabulary_->inside.vocab_size(); ++token) {
    if (IsDroppedSpace(token)) dropped_spaces_.push_back(token);
  }
  max_last_ = CountLastTokens() + std::ssize(options_.end_ids);
}

const TokenTrie& PushdownConstraint::TrieAt(State state) const {
  const bool is_first = state == kOpening ||
                        (state == kAfterSpace && vocabulary_->drops_all_spaces);
  return is_first && vocabulary_->first ? *vocabulary_->first
                                        : vocabulary_->inside;
}

bool PushdownConstraint::IsDroppedSpace(TokenId token) const {
  return vocabulary_->first && vocabulary_->first->BytesOf(token).empty() &&
         !vocabulary_->inside.BytesOf(token).empty();
}

// Follows the bytes of a walk as long as it is within its limits.
class PushdownConstraint::Follower {
 public:
  Follower(const PushdownConstraint& constraint, const WalkLimits& limits)
      : configurations_(constraint.configurations_),
        limits_(limits),
        max_bytes_(constraint.options_.max_list_bytes) {}

  // Returns the configuration after a byte of a token. If it is not known, the
  // tokens are not.
  Configurations::State Next(Configurations::State from, uint8_t byte) {
    if (!TakeEffort()) return Configurations::kTooMany;
    Known& known = Follow(from, byte);
    if (!known.is_of_token) {
      known.is_of_token = true;
      CountSteps(from, byte, known.transition, &tokens_);
      if (known.next >= 0) Meet(known.next);
      Check();
      if (known.next == Configurations::kTooMany &&
          walk_.excess == Excess::kNone) {
        walk_.excess = Excess::kWays;
      }
    }
    return known.next;
  }
  // As above, for a byte that perhaps no token has. It must not make the
  // language too ambiguous, so it has limits of its own, and is not known
  // beyond these. Its time is part of the effort.
  Configurations::State Probe(Configurations::State from, uint8_t byte) {
    constexpr int kMaxWays = 8;
    constexpr int64_t kPart = 8;  // probes may take 1/8 as much
    if (!TakeEffort() || configurations_.num_ways(from) > kMaxWays ||
        FindExcess(probes_, kPart) != Excess::kNone) {
      return Configurations::kTooMany;
    }
    const Known& known = Follow(from, byte);
    if (!known.is_of_token) {
      CountSteps(from, byte, known.transition, &probes_);
      if (known.next >= 0) Count(known.next, &probes_);
    }
    return known.next;
  }
  // A token leads to a configuration, perhaps by probes alone.
  void MeetEnd(Configurations::State state) {
    if (Meet(state)) Check();
  }
  Walk TakeWalk() {
    walk_.effort += tokens_.num_steps + probes_.num_steps;
    return std::move(walk_);
  }

 private:
  struct Known {
    int64_t transition = -1;
    Configurations::State next = 0;
    bool is_of_token = false;  // false: it was probed alone, since it is here
  };
  // The cost of configurations and transitions, each counted once.
  struct Work {
    std::vector<bool> is_met;                 // by configuration
    std::unordered_set<int64_t> transitions;  // with more than kFewSteps
    int64_t num_ways = 0;
    int64_t num_steps = 0;
    int64_t num_bytes = 0;
  };

  // Returns false if the walk is over.
  bool TakeEffort() {
    if (++walk_.effort + tokens_.num_steps + probes_.num_steps >
        limits_.max_effort) {
      walk_.is_complete = false;
    }
    return walk_.excess == Excess::kNone && walk_.is_complete;
  }

  Known& Follow(Configurations::State from, uint8_t byte) {
    const int byte_class = configurations_.automaton().ClassOf(byte);
    const int64_t transition = int64_t{from} * 256 + byte_class;
    const size_t slot =
        static_cast<size_t>(from) * 37 + static_cast<size_t>(byte_class);
    Known& known = known_[slot % known_.size()];
    if (known.transition != transition) {
      known = {.transition = transition,
               .next = configurations_.Next(from, byte)};
    }
    return known;
  }

  void CountSteps(Configurations::State from, uint8_t byte, int64_t transition,
                  Work* work) const {
    const int64_t steps = configurations_.StepsOf(from, byte);
    if (steps > kFewSteps && work->transitions.insert(transition).second) {
      work->num_steps += steps;
    }
  }
  // Returns false if the configuration was counted before.
  bool Count(Configurations::State state, Work* work) const {
    std::vector<bool>& is_met = work->is_met;
    if (state >= std::ssize(is_met)) is_met.resize(state + state / 2 + 64);
    if (is_met[state]) return false;
    is_met[state] = true;
    work->num_ways += 1 + configurations_.num_ways(state);
    work->num_bytes += configurations_.num_bytes_of(state);
    return true;
  }
  bool Meet(Configurations::State state) {
    if (!Count(state, &tokens_)) return false;
    walk_.states.push_back(StateOf(state));
    return true;
  }

  void Check() {
    if (limits_.is_bounded && walk_.excess == Excess::kNone) {
      walk_.excess = FindExcess(tokens_, 1);
    }
  }
  // Finds what exceeds one of so many equal parts of the limits.
  Excess FindExcess(const Work& work, int64_t num_parts) const {
    if (work.num_ways > kMaxWaysOfList / num_parts) return Excess::kWaysOfList;
    if (work.num_steps > kMaxStepsOfList / num_parts) return Excess::kSteps;
    return work.num_bytes > max_bytes_ / num_parts ? Excess::kBytes
                                                   : Excess::kNone;
  }

  const Configurations& configurations_;
  const WalkLimits& limits_;
  const int64_t max_bytes_;
  Walk walk_;
  std::array<Known, 256> known_;  // the last transition of each slot
  Work tokens_;
  Work probes_;
};

template <typename End>
PushdownConstraint::Walk PushdownConstraint::AddLegal(State state,
                                                      const WalkLimits& limits,
                                                      const End& end,
                                                      TokenMask* mask) const {
  Follower follower(*this, limits);
  TrieAt(state).AddLegal(
      [&](Configurations::State from, uint8_t byte) {
        return follower.Next(from, byte);
      },
      [&](Configurations::State from, uint8_t byte) {
        return follower.Probe(from, byte);
      },
      ConfigurationOf(state),
      [&](Configurations::State next, size_t count) {
        follower.MeetEnd(next);
        return end(StateOf(next), count);
      },
      mask);
  if (state == kOpening && !dropped_spaces_.empty() &&
      end(kAfterSpace, dropped_spaces_.size())) {
    for (const TokenId token : dropped_spaces_) mask->Add(token);
  }
  Walk walk = follower.TakeWalk();
  total_effort_.fetch_add(walk.effort, std::memory_order_relaxed);
  return walk;
}

void PushdownConstraint::CountFromOpening() {
  more_of_opening_ = more_after_space_ =
      configurations_.min_more(Configurations::kStart);
  if (!options_.opens_text || !vocabulary_->first) return;
  for (const State state : {kAfterSpace, kOpening}) {
    int32_t fewest = kNever;
    TokenMask none(vocabulary_->inside.vocab_size());
    AddLegal(
        state, {},
        [&](State next, size_t) {
          const int32_t more = AcceptsText(next) ? 0 : MinMore(next);
          fewest = std::min(fewest, AddCosts(more, 1));
          return false;
        },
        &none);
    (state == kOpening ? more_of_opening_ : more_after_space_) = fewest;
  }
}

Constraint::State PushdownConstraint::Advance(State state,
                                              TokenId token) const {
  if (state == kEnded || token < 0 ||
      token >= vocabulary_->inside.vocab_size()) {
    return kNone;
  }
  if (std::ranges::binary_search(options_.end_ids, token)) {
    return AcceptsText(state) ? kEnded : kNone;
  }
  if (state == kOpening && IsDroppedSpace(token)) {
    return AcceptsText(kAfterSpace) || MinMore(kAfterSpace) != kNever
               ? kAfterSpace
               : kNone;
  }
  const std::string_view bytes = TrieAt(state).BytesOf(token);
  if (bytes.empty()) return kNone;
  const Configurations::State next =
      configurations_.Next(ConfigurationOf(state), bytes);
  return next >= 0 && configurations_.min_to_end(next) != kNever ? StateOf(next)
                                                                 : kNone;
}

Constraint::Legal PushdownConstraint::LegalTokens(State state,
                                                  int32_t room) const {
  if (state == kEnded || room < 1) return {};
  const State listed = ListedState(state);
  room = RoomOf(listed, state, room);
  const Entry& entry = EntryOf(listed);
  if (entry.list == nullptr) {
    return {.error = &too_ambiguous_[static_cast<size_t>(entry.excess)]};
  }
  const TokenList* list = entry.list;
  if (IsNear(entry, room)) list = NearList(listed, entry, room);
  return {.tokens = list->tokens,
          .num_last = list->num_last,
          .states = entry.states};
}

bool PushdownConstraint::IsListed(State state, int32_t room) const {
  if (state == kEnded || room < 1) return true;
  const State listed = ListedState(state);
  room = RoomOf(listed, state, room);
  const Entry* const entry = FindEntry(listed);
  if (entry == nullptr) return false;
  if (entry->list == nullptr || !IsNear(*entry, room)) return true;
  const std::lock_guard lock(mutex_);
  return near_.contains(NearKey(listed, *entry, room));
}

bool PushdownConstraint::TryList(State state, int32_t room,
                                 int64_t max_effort) const {
  if (state == kEnded || room < 1) return true;
  const State listed = ListedState(state);
  const Entry* entry = FindEntry(listed);
  if (entry == nullptr) {
    if (HasFailed(listed, max_effort)) return false;
    entry = EntryWithin(listed, max_effort);
  }
  if (entry == nullptr) {
    constexpr size_t kMostFailed = 1 << 12;
    const std::lock_guard lock(mutex_);
    if (failed_efforts_.size() >= kMostFailed) failed_efforts_.clear();
    int64_t& failed = failed_efforts_[listed];
    failed = std::max(failed, max_effort);
    return false;
  }
  if (entry->effort > max_effort) return false;
  LegalTokens(state, room);
  return true;
}

bool PushdownConstraint::HasFailed(State state, int64_t max_effort) const {
  const std::lock_guard lock(mutex_);
  const auto failed = failed_efforts_.find(state);
  return failed != failed_efforts_.end() && failed->second >= max_effort;
}

std::optional<ConstraintTables> PushdownConstraint::tables() const {
  const PushdownAutomaton& automaton = configurations_.automaton();
  std::call_once(arrays_once_, [&] {
    arrays_ = PushdownArrays::Make(automaton, configurations_.costs());
    if (arrays_ != nullptr) num_array_bytes_ = arrays_->num_bytes();
  });
  if (arrays_ == nullptr) return std::nullopt;
  ConstraintTables tables = {.vocab_size = vocabulary_->inside.vocab_size(),
                             .inside = vocabulary_->inside.texts()};
  if (vocabulary_->first) {
    tables.first = vocabulary_->first->texts();
    tables.drops_all_spaces = vocabulary_->drops_all_spaces;
  }
  tables.num_end_ids = static_cast<int>(options_.end_ids.size());
  tables.end_ids = options_.end_ids.data();
  arrays_->SetTables(&tables);
  tables.stacks.max_token_bytes =
      static_cast<int>(vocabulary_->suffixes.max_depth());
  tables.stacks.more_of_opening = more_of_opening_;
  tables.stacks.more_after_space = more_after_space_;
  tables.stacks.places = this;
  return tables;
}

bool PushdownConstraint::IsLegal(int32_t state, int32_t room,
                                 TokenId token) const {
  if (room < 1) return false;
  const State next = Advance(state, token);
  return next != kNone &&
         (next == kEnded || AcceptsText(next) || MinMore(next) <= room - 1);
}

void PushdownConstraint::Find(int32_t state, PushdownPlace* place) const {
  const int32_t num_states = configurations_.automaton().num_states();
  place->state = state == kNone ? kNone : num_states + 2;
  place->count = 0;
  place->height = 0;
  if (state == kNone || state == kEnded) return;
  if (state == kOpening || state == kAfterSpace) {
    place->state = num_states + (state == kAfterSpace ? 1 : 0);
    return;
  }
  int64_t count = 0;
  std::vector<PushdownAutomaton::State> stack;
  CHECK(configurations_.FindOrigin(ConfigurationOf(state), &place->state,
                                   &count, &stack))
      << "a text is read in several ways, state " << state;
  place->count = static_cast<int32_t>(count);
  place->height = static_cast<int32_t>(stack.size());
  arrays_->FindFrames(stack, place->frames);
}

void PushdownConstraint::AppendForcedBytes(State state, size_t max_bytes,
                                           std::string* bytes) const {
  if (state == kEnded) return;
  // Some nanoseconds each; those of the last byte may exceed it.
  constexpr int64_t kMaxSteps = 1 << 16;
  bool is_known = true;
  int64_t num_steps = 0;
  AppendForced(
      configurations_.automaton(), ConfigurationOf(state),
      [&](Configurations::State at) {
        return !is_known || configurations_.accepts(at);
      },
      [&](Configurations::State at, uint8_t byte) {
        const Configurations::State next = configurations_.Next(at, byte);
        num_steps += configurations_.StepsOf(at, byte);
        if (next == Configurations::kTooMany || num_steps > kMaxSteps) {
          is_known = false;
        }
        return next >= 0 && configurations_.min_to_end(next) != kNever
                   ? next
                   : Configurations::kNone;
      },
      max_bytes, bytes);
}

PushdownConstraint::Found PushdownConstraint::Find(
    State state, int32_t room, const WalkLimits& limits) const {
  Found found = {.mask = TokenMask(vocabulary_->inside.vocab_size())};
  int32_t added = kNever;  // the last one of needs
  const auto end = [&](State next, size_t count) {
    const int32_t more = MinMore(next);
    if (more != kNever && more != added) {
      added = more;
      const auto place = std::ranges::lower_bound(found.needs, more);
      if (place == found.needs.end() || *place != more) {
        found.needs.insert(place, more);
      }
    }
    if (more > room - 1) {
      if (!AcceptsText(next)) return false;
      found.num_last += static_cast<int>(count);
    }
    return true;
  };
  found.walk = AddLegal(state, limits, end, &found.mask);
  if (!found.walk.is_complete) return found;
  if (AcceptsText(state)) {
    for (const TokenId token : options_.end_ids) found.mask.Add(token);
    found.num_last += static_cast<int>(options_.end_ids.size());
  }
  found.mask.Normalize();
  return found;
}

const PushdownConstraint::Entry* PushdownConstraint::FindEntry(
    State state) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(state);
  return found != entries_.end() ? &found->second : nullptr;
}

const PushdownConstraint::Entry* PushdownConstraint::EntryWithin(
    State state, int64_t max_effort) const {
  if (const Entry* const entry = FindEntry(state)) return entry;
  Found made = Find(state, kNever, {.max_effort = max_effort});
  if (!made.walk.is_complete) return nullptr;
  made.needs.shrink_to_fit();
  made.walk.states.shrink_to_fit();
  Entry entry = {.needs = std::move(made.needs),
                 .states = std::move(made.walk.states),
                 .effort = made.walk.effort,
                 .excess = made.walk.excess};
  if (made.walk.excess == Excess::kNone) {
    entry.list = lists_.Keep(std::move(made.mask), made.num_last);
  }
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = entries_.try_emplace(state, std::move(entry));
  if (is_new) {
    failed_efforts_.erase(state);
    num_kept_bytes_ += static_cast<int64_t>(
        sizeof(*it) + 48 + it->second.needs.size() * sizeof(int32_t) +
        it->second.states.size() * sizeof(State));
  }
  return &it->second;
}

std::pair<Constraint::State, int64_t> PushdownConstraint::NearKey(
    State state, const Entry& entry, int32_t room) {
  return {state,
          std::ranges::lower_bound(entry.needs, room) - entry.needs.begin()};
}

const TokenList* PushdownConstraint::NearList(State state, const Entry& entry,
                                              int32_t room) const {
  const auto key = NearKey(state, entry, room);
  {
    const std::lock_guard lock(mutex_);
    const auto found = near_.find(key);
    if (found != near_.end()) return found->second;
  }
  Found made = Find(state, room, {.is_bounded = false});
  const TokenList* const kept =
      lists_.Keep(std::move(made.mask), made.num_last);
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = near_.try_emplace(key, kept);
  if (is_new) num_kept_bytes_ += sizeof(*it) + 48;
  return it->second;
}

int64_t PushdownConstraint::CountLastTokens() const {
  const PushdownAutomaton& automaton = configurations_.automaton();
  // States of automata whose texts may end that of the language.
  std::vector<bool> may_end(automaton.num_states());
  std::vector<PushdownAutomaton::State> queue;
  const auto add = [&](PushdownAutomaton::State state) {
    if (state == PushdownAutomaton::kNone || may_end[state]) return;
    may_end[state] = true;
    queue.push_back(state);
  };
  add(PushdownAutomaton::kStart);
  while (!queue.empty()) {
    const PushdownAutomaton::State s = queue.back();
    queue.pop_back();
    for (int c = 0; c < automaton.num_classes(); ++c) {
      add(automaton.NextByClass(s, c));
    }
    for (const auto& [callee, after] : automaton.CallsOf(s)) {
      add(after);
      if (automaton.accepts(after)) add(callee);
    }
  }
  std::array<bool, 256> is_last_byte = {};
  for (PushdownAutomaton::State s = 0; s < automaton.num_states(); ++s) {
    for (int byte = 0; byte < 256; ++byte) {
      const PushdownAutomaton::State next = automaton.NextByClass(
          s, automaton.ClassOf(static_cast<uint8_t>(byte)));
      if (may_end[s] && next != PushdownAutomaton::kNone &&
          automaton.accepts(next)) {
        is_last_byte[byte] = true;
      }
    }
  }
  const auto may_be_last = [&](const TokenTrie& trie, TokenId token) {
    const std::string_view bytes = trie.BytesOf(token);
    return !bytes.empty() && is_last_byte[static_cast<uint8_t>(bytes.back())];
  };
  int64_t count = 0;
  for (TokenId token = 0; token < vocabulary_->inside.vocab_size(); ++token) {
    if (may_be_last(vocabulary_->inside, token) || IsDroppedSpace(token) ||
        (vocabulary_->first && may_be_last(*vocabulary_->first, token))) {
      ++count;
    }
  }
  return count;
}

int32_t PushdownConstraint::MinRoom(bool is_empty_text_legal) const {
  return is_empty_text_legal && !options_.end_ids.empty() &&
                 AcceptsText(start())
             ? 1
             : MinMore(start());
}

int64_t PushdownConstraint::num_bytes() const {
  const std::lock_guard lock(mutex_);
  const PushdownAutomaton& automaton = configurations_.automaton();
  return automaton.table_bytes() + automaton.bytes().num_bytes() +
         configurations_.costs().num_bytes() + configurations_.num_bytes() +
         NumListBytes() + num_array_bytes_;
}

int64_t PushdownConstraint::NumListBytes() const {
  constexpr int64_t kBytesOfFailed = sizeof(*failed_efforts_.begin()) + 48;
  return lists_.num_bytes() + num_kept_bytes_ +
         std::ssize(failed_efforts_) * kBytesOfFailed;
}

bool PushdownConstraint::is_full() const {
  const std::lock_guard lock(mutex_);
  return configurations_.num_bytes() + NumListBytes() > options_.max_list_bytes;
}

}  // namespace espalier
