#include "constrain/pushdown_automaton.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "constrain/token_suffixes.h"

namespace espalier {

int PushdownAutomaton::NumDigitsOf(int64_t num_automata) {
  int num_digits = 1;
  for (int64_t count = kNumDigits; count < num_automata; count *= kNumDigits) {
    ++num_digits;
  }
  return num_digits;
}

namespace {

// Adds a byte and a number.
absl::Status AddNumber(uint8_t byte, int64_t number, int num_digits,
                       ByteNfa::State from, ByteNfa::State to, ByteNfa* nfa) {
  ASSIGN_OR_RETURN(ByteNfa::State state, nfa->AddState());
  RETURN_IF_ERROR(nfa->AddBytes(from, byte, byte, state));
  for (int i = 0; i < num_digits; ++i) {
    const auto digit =
        static_cast<uint8_t>(PushdownAutomaton::kFirstDigit +
                             number % PushdownAutomaton::kNumDigits);
    number /= PushdownAutomaton::kNumDigits;
    from = state;
    ASSIGN_OR_RETURN(state, nfa->AddState());
    RETURN_IF_ERROR(nfa->AddBytes(from, digit, digit, state));
  }
  return nfa->AddEmpty(state, to);
}

}  // namespace

absl::Status PushdownAutomaton::AddCall(int64_t automaton, int num_digits,
                                        ByteNfa::State from, ByteNfa::State to,
                                        ByteNfa* nfa) {
  return AddNumber(kCallByte, automaton, num_digits, from, to, nfa);
}

absl::Status PushdownAutomaton::AddLimit(int64_t limit, ByteNfa::State from,
                                         ByteNfa::State to, ByteNfa* nfa) {
  return AddNumber(kLimitByte, limit, kNumLimitDigits, from, to, nfa);
}

// Renumbers the states that texts and calls lead to.
class PushdownAutomaton::Maker {
 public:
  Maker(const ByteAutomaton& from, int num_digits, std::vector<Counts> limits,
        CompileBudget* budget)
      : from_(from),
        num_digits_(num_digits),
        limits_(std::move(limits)),
        budget_(*budget),
        numbers_(from.num_states(), kNone) {}

  absl::StatusOr<PushdownAutomaton> Make(int max_depth) {
    made_.max_depth_ = max_depth;
    FindClasses();
    RETURN_IF_ERROR(FindStarts());
    NumberOf(starts_[0]);
    made_.first_call_.push_back(0);
    for (size_t i = 0; i < states_.size(); ++i) {
      RETURN_IF_ERROR(AddState(states_[i]));
    }
    if (!limits_.empty()) RETURN_IF_ERROR(made_.FindCounts(&budget_));
    RETURN_IF_ERROR(made_.CountBytes(&budget_));
    return std::move(made_);
  }

 private:
  // Bytes from kCountByte on are those of calls and counts; text has none.
  void FindClasses() {
    constexpr uint8_t kNoText = 0xC0;  // no UTF-8 has it
    std::vector<int> numbers(from_.num_classes(), -1);
    for (int byte = 0; byte < 256; ++byte) {
      const int from_class = from_.ClassOf(
          byte < kCountByte ? static_cast<uint8_t>(byte) : kNoText);
      if (numbers[from_class] < 0) {
        numbers[from_class] = made_.num_classes_++;
        classes_.push_back(from_class);
      }
      made_.classes_[byte] = static_cast<uint8_t>(numbers[from_class]);
    }
  }

  // Calls visit(automaton, state) for each call from a state.
  template <typename Visit>
  void ForEachCall(ByteAutomaton::State state, const Visit& visit) const {
    state = from_.Next(state, kCallByte);
    if (state == ByteAutomaton::kNone) return;
    ForEachNumber(state, num_digits_, 0, 1, visit);
  }
  // Calls visit(limit, state) for each limit from a state.
  template <typename Visit>
  void ForEachLimit(ByteAutomaton::State state, const Visit& visit) const {
    state = from_.Next(state, kLimitByte);
    if (state == ByteAutomaton::kNone) return;
    ForEachNumber(state, kNumLimitDigits, 0, 1,
                  [&](int64_t number, ByteAutomaton::State before) {
                    visit(limits_[number], before);
                  });
  }
  template <typename Visit>
  void ForEachNumber(ByteAutomaton::State state, int num_left, int64_t number,
                     int64_t factor, const Visit& visit) const {
    if (num_left == 0) return visit(number, state);
    for (int digit = 0; digit < kNumDigits; ++digit) {
      const ByteAutomaton::State next =
          from_.Next(state, static_cast<uint8_t>(kFirstDigit + digit));
      if (next == ByteAutomaton::kNone) continue;
      ForEachNumber(next, num_left - 1, number + digit * factor,
                    factor * kNumDigits, visit);
    }
  }

  // Errors: kInvalidArgument if the first automaton has no text, although those
  // that it calls have some.
  absl::Status FindStarts() {
    ForEachCall(ByteAutomaton::kStart,
                [&](int64_t number, ByteAutomaton::State state) {
                  if (number >= std::ssize(starts_)) {
                    starts_.resize(number + 1, ByteAutomaton::kNone);
                  }
                  starts_[number] = state;
                });
    if (starts_.empty() || starts_[0] == ByteAutomaton::kNone) {
      return InvalidArgument("no text matches");
    }
    return absl::OkStatus();
  }

  State NumberOf(ByteAutomaton::State state) {
    if (numbers_[state] == kNone) {
      numbers_[state] = static_cast<State>(states_.size());
      states_.push_back(state);
    }
    return numbers_[state];
  }

  absl::Status AddState(ByteAutomaton::State state) {
    RETURN_IF_ERROR(budget_.Take(4 + made_.num_classes_));
    bool reads_bytes = false;
    for (const int from_class : classes_) {
      ByteAutomaton::State next = from_.NextByClass(state, from_class);
      reads_bytes |= next != ByteAutomaton::kNone;
      uint8_t kind = 0;
      if (!limits_.empty() && next != ByteAutomaton::kNone) {
        const ByteAutomaton::State after_count = from_.Next(next, kCountByte);
        if (after_count != ByteAutomaton::kNone) {
          next = after_count;
          kind = kAddsOne;
        }
      }
      if (!limits_.empty()) made_.kinds_.push_back(kind);
      made_.next_.push_back(next == ByteAutomaton::kNone ? kNone
                                                         : NumberOf(next));
    }
    if (!limits_.empty()) reads_bytes |= AddLimits(state);
    made_.reads_bytes_.push_back(reads_bytes ? 1 : 0);
    made_.accepts_.push_back(from_.accepts(state) ? 1 : 0);
    ForEachCall(state, [&](int64_t number, ByteAutomaton::State after) {
      CHECK(number < std::ssize(starts_) &&
            starts_[number] != ByteAutomaton::kNone)
          << "automaton " << number << " is called and has no start";
      made_.calls_.push_back({NumberOf(starts_[number]), NumberOf(after)});
    });
    const auto num_calls = static_cast<int32_t>(made_.calls_.size());
    RETURN_IF_ERROR(
        budget_.Take(8 * int64_t{num_calls - made_.first_call_.back()}));
    made_.first_call_.push_back(num_calls);
    return absl::OkStatus();
  }

  // Adds the bytes with a limit to the last state of made_. Returns true if
  // there are any.
  bool AddLimits(ByteAutomaton::State state) {
    Counter& counter = made_.counters_.emplace_back();
    const size_t first = made_.next_.size() - classes_.size();
    ForEachLimit(state, [&](const Counts& counts, ByteAutomaton::State before) {
      counter.limit = std::max(counter.limit, counts.most);
      counter.least = counts.least;
      for (size_t c = 0; c < classes_.size(); ++c) {
        const ByteAutomaton::State next =
            from_.NextByClass(before, classes_[c]);
        if (next == ByteAutomaton::kNone) continue;
        CHECK(made_.next_[first + c] == kNone ||
              made_.next_[first + c] == NumberOf(next))
            << "a byte with a limit leads to several states";
        made_.next_[first + c] = NumberOf(next);
        made_.kinds_[first + c] = kHasLimit;
      }
    });
    return counter.limit >= 0;
  }

  const ByteAutomaton& from_;
  const int num_digits_;
  const std::vector<Counts> limits_;
  CompileBudget& budget_;
  std::vector<int> classes_;                  // from_ by made_
  std::vector<ByteAutomaton::State> starts_;  // by automaton
  std::vector<ByteAutomaton::State> states_;  // from_ by made_
  std::vector<State> numbers_;                // the inverse, or kNone
  PushdownAutomaton made_;
};

absl::StatusOr<PushdownAutomaton> PushdownAutomaton::Make(
    const ByteAutomaton& calls, int num_digits, int max_depth,
    CompileBudget* budget, std::vector<Counts> limits) {
  return Maker(calls, num_digits, std::move(limits), budget).Make(max_depth);
}

// From the states with limits against the transitions, by falling counts
// (Dijkstra, A note on two problems in connexion with graphs, 1959). No
// transition leads into an automaton, so those with a counter end at its start.
absl::Status PushdownAutomaton::FindCounts(CompileBudget* budget) {
  // A step is some nanoseconds; most transitions are none.
  RETURN_IF_ERROR(budget->Take(static_cast<int64_t>(next_.size()) / 2));
  struct Source {
    State state;
    int added;
  };
  std::vector<int32_t> first(num_states() + 1, 0);  // by the state after
  std::vector<State> region(num_states());          // a state of it
  std::iota(region.begin(), region.end(), 0);
  const auto region_of = [&](State state) {
    while (region[state] != state)
      state = region[state] = region[region[state]];
    return state;
  };
  const auto for_each = [&](const auto& visit) {
    for (State s = 0; s < num_states(); ++s) {
      for (int c = 0; c < num_classes_; ++c) {
        const State to = NextByClass(s, c);
        const uint8_t kind = KindOf(s, c);
        if (to != kNone && kind != kHasLimit) {
          visit(Source{s, kind == kAddsOne ? 1 : 0}, to);
        }
      }
    }
  };
  for_each([&](const Source&, State to) { ++first[to + 1]; });
  for (State s = 0; s < num_states(); ++s) first[s + 1] += first[s];
  std::vector<Source> sources(first.back());
  std::vector<int32_t> end(first.begin(), first.end() - 1);
  for_each(
      [&](const Source& source, State to) { sources[end[to]++] = source; });
  std::priority_queue<std::pair<int64_t, State>> queue;
  for (State s = 0; s < num_states(); ++s) {
    if (counters_[s].limit >= 0) queue.emplace(counters_[s].limit, s);
  }
  while (!queue.empty()) {
    const auto [count, state] = queue.top();
    queue.pop();
    if (IsCounted(state)) continue;
    counters_[state].max_count = count;
    RETURN_IF_ERROR(budget->Take(16 + first[state + 1] - first[state]));
    for (int32_t i = first[state]; i < first[state + 1]; ++i) {
      const auto& [source, added] = sources[i];
      region[region_of(source)] = region_of(state);
      if (IsCounted(source)) continue;
      queue.emplace(count == kUnlimited ? count : count - added, source);
    }
  }
  std::map<State, int32_t> regions;
  std::vector<std::vector<State>> states;  // by region
  for (State s = 0; s < num_states(); ++s) {
    if (!IsCounted(s)) continue;
    const auto [entry, is_new] = regions.try_emplace(
        region_of(s), static_cast<int32_t>(regions_.size()));
    if (is_new) regions_.emplace_back();
    if (is_new) states.emplace_back();
    states[entry->second].push_back(s);
    Counter& counter = counters_[s];
    counter.region = entry->second;
    Region& of_state = regions_[entry->second];
    of_state.least = std::max(of_state.least, counter.least);
    for (const int64_t count : {counter.max_count, counter.limit}) {
      if (count >= 0 && count != kUnlimited) of_state.limits.push_back(count);
    }
  }
  for (size_t i = 0; i < regions_.size(); ++i) {
    std::vector<int64_t>& limits = regions_[i].limits;
    if (regions_[i].least > 0) {
      limits.push_back(regions_[i].least - 1);
      RETURN_IF_ERROR(FindMoreBelow(states[i], &regions_[i], budget));
    }
    std::ranges::sort(limits);
    limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  }
  return absl::OkStatus();
}

// A step is a byte after which the text can be completed, if the count was
// below the least one. Of each state there has to be a step that pays off: what
// the state needs beyond bytes_for_one for each missing count, more_below, is
// at least that of the state after it and one, less bytes_for_one if it adds a
// count. No cycle is without counts, because a character has few bytes, so
// these steps lead to the least count.
absl::Status PushdownAutomaton::FindMoreBelow(std::span<const State> states,
                                              Region* region,
                                              CompileBudget* budget) {
  constexpr int32_t kMaxBytesForOne = 8;
  const absl::Status impossible = FailedPrecondition(
      "an automaton has a least count, and texts that cannot be continued");
  int64_t most = -1;
  for (const State s : states) most = std::max(most, counters_[s].limit);
  // The fewest counts to the end.
  const auto fewest = [&](State s) {
    return most == kUnlimited ? 0 : most - counters_[s].max_count;
  };
  struct Step {
    State from;
    State to;
    int added;
  };
  std::vector<Step> steps;       // by `from`
  std::vector<Step> sure_steps;  // the fewest lead to the end
  std::map<State, int64_t> to_end;
  for (const State s : states) {
    RETURN_IF_ERROR(budget->Take(4 * num_classes_));
    const Counter& counter = counters_[s];
    const bool may_end = counter.limit >= 0;
    if (may_end && (counter.limit != most || counter.least != region->least)) {
      return impossible;
    }
    to_end[s] = may_end ? 1 : PushdownCosts::kNever;
    const size_t num_before = steps.size();
    for (int c = 0; c < num_classes_; ++c) {
      const State to = NextByClass(s, c);
      const uint8_t kind = KindOf(s, c);
      if (to == kNone || kind == kHasLimit) continue;
      if (!IsCounted(to)) return impossible;
      const Step step = {s, to, kind == kAddsOne ? 1 : 0};
      if (IsSure(s, c)) sure_steps.push_back(step);
      if (most == kUnlimited ||
          step.added + fewest(to) <= 1 + most - region->least) {
        steps.push_back(step);
      }
    }
    if (steps.size() == num_before) return impossible;
  }
  for (bool changes = true; changes;) {
    RETURN_IF_ERROR(budget->Take(std::ssize(sure_steps)));
    changes = false;
    for (const Step& step : sure_steps) {
      if (to_end[step.to] + 1 >= to_end[step.from]) continue;
      to_end[step.from] = to_end[step.to] + 1;
      changes = true;
    }
  }
  int64_t most_to_end = 0;
  for (const auto& [s, more] : to_end)
    most_to_end = std::max(most_to_end, more);
  if (most_to_end >= PushdownCosts::kNever) return impossible;
  for (int32_t per_count = 1; per_count <= kMaxBytesForOne; ++per_count) {
    std::map<State, int64_t> more = to_end;
    const int64_t too_many = most_to_end + std::ssize(states) + 1;
    bool is_possible = true;
    for (bool changes = true; changes && is_possible;) {
      RETURN_IF_ERROR(budget->Take(std::ssize(steps)));
      changes = false;
      for (size_t i = 0; i < steps.size();) {
        const State s = steps[i].from;
        int64_t least = PushdownCosts::kNever;
        for (; i < steps.size() && steps[i].from == s; ++i) {
          least = std::min(least, 1 + more[steps[i].to] -
                                      int64_t{per_count} * steps[i].added);
        }
        if (least <= more[s]) continue;
        more[s] = least;
        changes = true;
        is_possible &= least <= too_many;
      }
    }
    if (!is_possible) continue;
    region->bytes_for_one = per_count;
    for (const auto& [s, bytes] : more) {
      counters_[s].more_below = static_cast<int32_t>(bytes);
    }
    return absl::OkStatus();
  }
  return impossible;
}

int32_t PushdownAutomaton::MoreBelowLeast(State state, int64_t count) const {
  if (!IsBelowLeast(state, count)) return 0;
  const Region& region = regions_[counters_[state].region];
  const int64_t more = region.bytes_for_one * (region.least - count) +
                       counters_[state].more_below;
  return static_cast<int32_t>(std::min<int64_t>(more, PushdownCosts::kNever));
}

bool PushdownAutomaton::has_least() const {
  return std::ranges::any_of(
      regions_, [](const Region& region) { return region.least > 0; });
}

int64_t PushdownAutomaton::CountAfterCounted(State state, int byte_class,
                                             int64_t count) const {
  const uint8_t kind = KindOf(state, byte_class);
  if (kind == kHasLimit &&
      (count > counters_[state].limit || count < counters_[state].least)) {
    return -1;
  }
  const State next = NextByClass(state, byte_class);
  if (!IsCounted(next)) return 0;
  const std::vector<int64_t>& limits = regions_[counters_[next].region].limits;
  const int64_t beyond = limits.empty() ? 0 : limits.back() + 1;
  count = std::min(count + (kind == kAddsOne ? 1 : 0), beyond);
  return count <= counters_[next].max_count ? count : -1;
}

std::optional<PushdownAutomaton::CounterLimits> PushdownAutomaton::CounterOf(
    State state) const {
  if (!has_counters() || !IsCounted(state)) return std::nullopt;
  const Counter& counter = counters_[state];
  const Region& region = regions_[counter.region];
  return CounterLimits{
      .max_count = counter.max_count,
      .limit = counter.limit,
      .least = counter.least,
      .beyond = region.limits.empty() ? 0 : region.limits.back() + 1,
      .region_least = region.least,
      .bytes_for_one = region.bytes_for_one,
      .more_below = counter.more_below,
      .limits = region.limits};
}

int64_t PushdownAutomaton::SimilarCount(State state, int64_t count,
                                        int64_t reach) const {
  if (!has_counters() || !IsCounted(state)) return count;
  const std::vector<int64_t>& limits = regions_[counters_[state].region].limits;
  const auto next = std::ranges::lower_bound(limits, count);
  if (next != limits.end() && *next - count < reach) return count;
  return next == limits.begin() ? 0 : *(next - 1) + 1;
}

bool PushdownAutomaton::IsSure(State state, int byte_class) const {
  if (!has_counters() || !IsCounted(state)) return true;
  const Counter& counter = counters_[state];
  const uint8_t kind = KindOf(state, byte_class);
  if (kind == kHasLimit) return counter.limit == counter.max_count;
  const int64_t after = counters_[NextByClass(state, byte_class)].max_count;
  if (after == kUnlimited) return true;
  return after - (kind == kAddsOne ? 1 : 0) == counter.max_count;
}

absl::Status PushdownAutomaton::CountBytes(CompileBudget* budget) {
  static const TokenSuffixes* const kBytes = [] {
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      bytes.emplace_back(1, static_cast<char>(byte));
    }
    return new TokenSuffixes(bytes);
  }();
  ASSIGN_OR_RETURN(bytes_, CountPushdownCosts(*this, *kBytes, budget));
  if (accepts(kStart) ||
      bytes_.More(kStart, max_depth_) != PushdownCosts::kNever) {
    return absl::OkStatus();
  }
  if (std::ssize(bytes_.more) <= max_depth_) {  // more room changes nothing
    return InvalidArgument("each text has ", PushdownCosts::kNever,
                           " bytes or more, the limit");
  }
  return InvalidArgument(
      "in each text more than ", max_depth_,
      " rules or references that lead back to themselves are within one "
      "another, the limit");
}

// Its accepting states call the start of this, and nothing follows the call.
absl::StatusOr<PushdownAutomaton> PushdownAutomaton::After(
    const ByteAutomaton& before, CompileBudget* budget) const {
  PushdownAutomaton made;
  made.max_depth_ = max_depth_;
  std::map<std::pair<int, int>, int> numbers;
  std::vector<std::pair<int, int>> classes;  // pairs of theirs
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    const std::pair<int, int> both = {before.ClassOf(byte), ClassOf(byte)};
    const auto [entry, is_new] =
        numbers.try_emplace(both, static_cast<int>(classes.size()));
    if (is_new) classes.push_back(both);
    made.classes_[i] = static_cast<uint8_t>(entry->second);
  }
  made.num_classes_ = static_cast<int>(classes.size());
  const State first = before.num_states();  // where its own states begin
  const State end = first + num_states();
  RETURN_IF_ERROR(budget->CheckStates(end + 1));
  RETURN_IF_ERROR(
      budget->Take((int64_t{end} + 1) * made.num_classes_ + 8 * num_calls()));
  made.first_call_.push_back(0);
  const auto add = [&](auto next_of, bool is_end, auto add_calls) {
    bool reads_bytes = false;
    for (const auto& both : classes) {
      made.next_.push_back(next_of(both));
      reads_bytes |= made.next_.back() != kNone;
    }
    made.reads_bytes_.push_back(reads_bytes ? 1 : 0);
    made.accepts_.push_back(is_end ? 1 : 0);
    add_calls();
    made.first_call_.push_back(static_cast<int32_t>(made.calls_.size()));
  };
  for (State s = 0; s < first; ++s) {
    add([&](const auto& both) { return before.NextByClass(s, both.first); },
        before.accepts(s) && accepts(kStart),
        [&] {
          if (before.accepts(s)) made.calls_.push_back({first, end});
        });
  }
  for (State s = 0; s < num_states(); ++s) {
    add(
        [&](const auto& both) {
          const State next = NextByClass(s, both.second);
          return next == kNone ? kNone : first + next;
        },
        accepts(s),
        [&] {
          for (const Call& call : CallsOf(s)) {
            made.calls_.push_back({first + call.callee, first + call.after});
          }
        });
  }
  add([](const auto&) { return kNone; }, /*is_end=*/true, [] {});
  if (has_counters()) {
    made.regions_ = regions_;
    made.counters_.resize(end + 1);
    std::ranges::copy(counters_, made.counters_.begin() + first);
    made.kinds_.assign(made.next_.size(), 0);
    for (State s = 0; s < num_states(); ++s) {
      for (size_t c = 0; c < classes.size(); ++c) {
        made.kinds_[(first + s) * classes.size() + c] =
            KindOf(s, classes[c].second);
      }
    }
  }
  RETURN_IF_ERROR(made.CountBytes(budget));
  return made;
}

}  // namespace espalier
