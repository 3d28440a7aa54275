#include "constrain/pushdown_automaton.h"

#include <map>
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

absl::Status PushdownAutomaton::AddCall(int64_t automaton, int num_digits,
                                        ByteNfa::State from, ByteNfa::State to,
                                        ByteNfa* nfa) {
  ASSIGN_OR_RETURN(ByteNfa::State state, nfa->AddState());
  RETURN_IF_ERROR(nfa->AddBytes(from, kCallByte, kCallByte, state));
  for (int i = 0; i < num_digits; ++i) {
    const auto digit =
        static_cast<uint8_t>(kFirstDigit + automaton % kNumDigits);
    automaton /= kNumDigits;
    from = state;
    ASSIGN_OR_RETURN(state, nfa->AddState());
    RETURN_IF_ERROR(nfa->AddBytes(from, digit, digit, state));
  }
  return nfa->AddEmpty(state, to);
}

// Renumbers the states that texts and calls lead to.
class PushdownAutomaton::Maker {
 public:
  Maker(const ByteAutomaton& from, int num_digits, CompileBudget* budget)
      : from_(from),
        num_digits_(num_digits),
        budget_(*budget),
        numbers_(from.num_states(), kNone) {}

  absl::StatusOr<PushdownAutomaton> Make(int max_depth) {
    made_.max_depth_ = max_depth;
    FindClasses();
    FindStarts();
    NumberOf(starts_[0]);
    made_.first_call_.push_back(0);
    for (size_t i = 0; i < states_.size(); ++i) {
      RETURN_IF_ERROR(AddState(states_[i]));
    }
    RETURN_IF_ERROR(made_.CountBytes(&budget_));
    return std::move(made_);
  }

 private:
  // Bytes from kFirstDigit on are those of calls; text has none of them.
  void FindClasses() {
    constexpr uint8_t kNoText = 0xC0;  // no UTF-8 has it
    std::vector<int> numbers(from_.num_classes(), -1);
    for (int byte = 0; byte < 256; ++byte) {
      const int from_class = from_.ClassOf(
          byte < kFirstDigit ? static_cast<uint8_t>(byte) : kNoText);
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
    ForEachNumber(state, 0, 0, 1, visit);
  }
  template <typename Visit>
  void ForEachNumber(ByteAutomaton::State state, int num_read, int64_t number,
                     int64_t factor, const Visit& visit) const {
    if (num_read == num_digits_) return visit(number, state);
    for (int digit = 0; digit < kNumDigits; ++digit) {
      const ByteAutomaton::State next =
          from_.Next(state, static_cast<uint8_t>(kFirstDigit + digit));
      if (next == ByteAutomaton::kNone) continue;
      ForEachNumber(next, num_read + 1, number + digit * factor,
                    factor * kNumDigits, visit);
    }
  }

  void FindStarts() {
    ForEachCall(ByteAutomaton::kStart,
                [&](int64_t number, ByteAutomaton::State state) {
                  if (number >= std::ssize(starts_)) {
                    starts_.resize(number + 1, ByteAutomaton::kNone);
                  }
                  starts_[number] = state;
                });
    CHECK(!starts_.empty() && starts_[0] != ByteAutomaton::kNone)
        << "no automaton has the language";
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
      const ByteAutomaton::State next = from_.NextByClass(state, from_class);
      reads_bytes |= next != ByteAutomaton::kNone;
      made_.next_.push_back(next == ByteAutomaton::kNone ? kNone
                                                         : NumberOf(next));
    }
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

  const ByteAutomaton& from_;
  const int num_digits_;
  CompileBudget& budget_;
  std::vector<int> classes_;                  // from_ by made_
  std::vector<ByteAutomaton::State> starts_;  // by automaton
  std::vector<ByteAutomaton::State> states_;  // from_ by made_
  std::vector<State> numbers_;                // the inverse, or kNone
  PushdownAutomaton made_;
};

absl::StatusOr<PushdownAutomaton> PushdownAutomaton::Make(
    const ByteAutomaton& calls, int num_digits, int max_depth,
    CompileBudget* budget) {
  return Maker(calls, num_digits, budget).Make(max_depth);
}

absl::Status PushdownAutomaton::CountBytes(CompileBudget* budget) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  ASSIGN_OR_RETURN(bytes_,
                   CountPushdownCosts(*this, TokenSuffixes(bytes), budget));
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
  RETURN_IF_ERROR(made.CountBytes(budget));
  return made;
}

}  // namespace espalier
