#include "constrain/pushdown_arrays.h"

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "base/pushdown_walk.h"

namespace espalier {
namespace {

using State = PushdownAutomaton::State;
using Classes = std::bitset<256>;

// A text has fewer characters than this.
constexpr int64_t kMaxCharacters = 1 << 30;

int32_t Clamped(int64_t count) {
  if (count == PushdownAutomaton::kUnlimited) return INT32_MAX;
  return static_cast<int32_t>(
      std::clamp(count, -kMaxCharacters, kMaxCharacters));
}

}  // namespace

class PushdownArrays::Maker {
 public:
  Maker(const PushdownAutomaton& automaton, const PushdownCosts& costs)
      : automaton_(automaton), costs_(costs) {}

  std::unique_ptr<const PushdownArrays> Make() {
    made_->max_depth_ = automaton_.max_depth();
    made_->num_classes_ = num_classes();
    std::vector<int32_t> entries;
    if (made_->max_depth_ > PushdownPlace::kMaxDepth || !AddCounters() ||
        !FindEntries(made_->max_depth_, 0, &entries) ||
        !IsDeterministic(entries)) {
      return nullptr;
    }
    AddStates();
    const size_t num_costs =
        std::max(automaton_.bytes().more.size(), costs_.more.size());
    made_->num_levels_ = static_cast<int>(
        std::min<size_t>(made_->max_depth_ + 1, num_costs + most_calls_));
    const int64_t num_entries =
        int64_t{made_->num_levels_} * num_states() * num_classes();
    if (num_entries > kMaxBytes / 4) return nullptr;
    made_->next_.reserve(num_entries);
    for (int level = 0; level < made_->num_levels_; ++level) {
      if (!FindEntries(level, level * num_states(), &entries)) return nullptr;
      AddLevel(level, entries);
    }
    return made_->num_bytes() <= kMaxBytes ? std::move(made_) : nullptr;
  }

 private:
  int num_states() const { return automaton_.num_states(); }
  int num_classes() const { return automaton_.num_classes(); }

  // Returns false if an automaton with a counter calls others, or is one that
  // calls return to.
  bool AddCounters() {
    if (!automaton_.has_counters()) return true;
    std::map<const int64_t*, int32_t> first_limits;
    for (State s = 0; s < num_states(); ++s) {
      PushdownTables::Counter& counter = made_->counters_.emplace_back();
      for (const PushdownAutomaton::Call& call : automaton_.CallsOf(s)) {
        if (automaton_.CounterOf(s) || automaton_.CounterOf(call.after)) {
          return false;
        }
      }
      const auto limits = automaton_.CounterOf(s);
      if (!limits) continue;
      const auto [first, is_new] = first_limits.try_emplace(
          limits->limits.data(), static_cast<int32_t>(made_->limits_.size()));
      if (is_new) {
        for (const int64_t limit : limits->limits) {
          made_->limits_.push_back(Clamped(limit));
        }
      }
      counter = {.max_count = Clamped(limits->max_count),
                 .limit = Clamped(limits->limit),
                 .least = Clamped(limits->least),
                 .beyond = Clamped(limits->beyond),
                 .region_least = Clamped(limits->region_least),
                 .bytes_for_one = limits->bytes_for_one,
                 .more_below = limits->more_below,
                 .first_limit = first->second,
                 .num_limits = static_cast<int32_t>(limits->limits.size())};
    }
    return true;
  }

  void AddStates() {
    for (int byte = 0; byte < 256; ++byte) {
      made_->classes_[byte] =
          static_cast<uint8_t>(automaton_.ClassOf(static_cast<uint8_t>(byte)));
    }
    for (State s = 0; s < num_states(); ++s) {
      made_->accepts_.push_back(automaton_.accepts(s) ? 1 : 0);
    }
  }

  bool IsLive(State state, int level) const {
    return automaton_.accepts(state) ||
           automaton_.bytes().More(state, level) != PushdownCosts::kNever;
  }

  // Finds `next` of all states with room for `level` calls, but for returns,
  // and more_. Returns false if that takes too many steps, or a byte has
  // several.
  //   first_node  of the level
  bool FindEntries(int level, int32_t first_node,
                   std::vector<int32_t>* entries) {
    entries->assign(size_t(num_states()) * num_classes(),
                    PushdownTables::kNone);
    more_.assign(num_states(), PushdownCosts::kNever);
    for (State s = 0; s < num_states(); ++s) {
      std::vector<State> pushed;
      const std::span<int32_t> of_state =
          std::span(*entries).subspan(size_t(s) * num_classes(), num_classes());
      if (!Visit({s, first_node, of_state}, s, level, 0, &pushed)) return false;
    }
    return true;
  }

  struct Visited {
    State from = 0;
    int32_t first_node = 0;
    std::span<int32_t> entries;  // [num_classes]
  };

  // Adds the bytes of a state that calls lead to.
  //   cost  from the returns that were pushed, to the end of the text
  bool Visit(const Visited& visited, State state, int level, int32_t cost,
             std::vector<State>* pushed) {
    num_steps_ += 2 * num_classes();
    if (num_steps_ > kMaxSteps || pushed->size() > PushdownPlace::kMaxDepth) {
      return false;
    }
    int32_t own = costs_.More(state, level);
    if (state != visited.from) {
      own = std::max(own, automaton_.MoreBelowLeast(state, 0));
    }
    int32_t& more = more_[visited.from];
    more = std::min(more, AddCosts(own, cost));
    int32_t calls = -1;  // number of `pushed`
    for (int c = 0; c < num_classes(); ++c) {
      const State next = automaton_.NextByClass(state, c);
      if (next == PushdownAutomaton::kNone || !IsLive(next, level)) continue;
      if (visited.entries[c] != PushdownTables::kNone) return false;
      const bool is_plain =
          pushed->empty() && !IsCounted(state) && !IsCounted(next);
      if (is_plain) {
        visited.entries[c] = visited.first_node + next;
        continue;
      }
      if (calls < 0) calls = NumberOf(*pushed);
      visited.entries[c] = MoveTo(next, state, c, calls);
    }
    for (const auto& [callee, after] : automaton_.CallsOf(state)) {
      if (automaton_.ends(after)) {
        if (automaton_.bytes().More(callee, level) == PushdownCosts::kNever) {
          continue;
        }
        if (!Visit(visited, callee, level, cost, pushed)) return false;
      } else if (level > 0 && IsLive(after, level) &&
                 automaton_.bytes().More(callee, level - 1) !=
                     PushdownCosts::kNever) {
        const int32_t of_after =
            automaton_.accepts(after) ? 0 : costs_.More(after, level);
        pushed->push_back(after);
        most_calls_ = std::max(most_calls_, pushed->size());
        if (!Visit(visited, callee, level - 1, AddCosts(of_after, cost),
                   pushed)) {
          return false;
        }
        pushed->pop_back();
      }
    }
    return true;
  }

  bool IsCounted(State state) const {
    return !made_->counters_.empty() &&
           made_->counters_[state].max_count != INT32_MIN;
  }

  // Returns the index in calls_ of states that calls push.
  int32_t NumberOf(const std::vector<State>& pushed) {
    const auto [it, is_new] =
        call_numbers_.try_emplace(pushed, static_cast<int32_t>(calls_.size()));
    if (is_new) {
      calls_.push_back({static_cast<int32_t>(made_->pushed_.size()),
                        static_cast<int16_t>(pushed.size())});
      made_->pushed_.insert(made_->pushed_.end(), pushed.begin(), pushed.end());
    }
    return it->second;
  }

  int32_t MoveTo(State next, State reader, int byte_class, int32_t calls) {
    int16_t kind = 0;
    if (automaton_.AddsOne(reader, byte_class)) kind = PushdownTables::kAddsOne;
    if (automaton_.HasLimit(reader, byte_class)) {
      kind = PushdownTables::kHasLimit;
    }
    const auto [it, is_new] = numbers_.try_emplace(
        {(int64_t{next} << 32) | reader, int64_t{calls} << 2 | kind},
        static_cast<int32_t>(made_->moves_.size()));
    if (is_new) {
      const auto& [first_call, num_calls] = calls_[calls];
      made_->moves_.push_back({.next = next,
                               .reader = reader,
                               .first_call = first_call,
                               .num_calls = num_calls,
                               .kind = kind});
    }
    return PushdownTables::kFirstMove - it->second;
  }

  // Finds the bytes that may follow where the text of a state's automaton ends.
  // False if such a byte may also follow without an end.
  //   entries  with room for all calls
  bool IsDeterministic(std::span<const int32_t> entries) {
    std::vector<Classes> first(num_states());
    for (State s = 0; s < num_states(); ++s) {
      for (int c = 0; c < num_classes(); ++c) {
        first[s][c] =
            entries[size_t(s) * num_classes() + c] != PushdownTables::kNone;
      }
    }
    returns_.assign(num_states(), {});
    const auto add = [&](State to, const Classes& classes) {
      const Classes all = returns_[to] | classes;
      if (all == returns_[to]) return false;
      returns_[to] = all;
      return true;
    };
    for (bool changes = true; changes;) {
      changes = false;
      num_steps_ += int64_t{num_states()} * num_classes();
      if (num_steps_ > kMaxSteps) return false;
      for (State s = 0; s < num_states(); ++s) {
        for (int c = 0; c < num_classes(); ++c) {
          const State next = automaton_.NextByClass(s, c);
          if (next != PushdownAutomaton::kNone) {
            changes |= add(next, returns_[s]);
          }
        }
        for (const auto& [callee, after] : automaton_.CallsOf(s)) {
          changes |= add(after, returns_[s]);
          Classes classes = first[after];
          if (automaton_.accepts(after)) classes |= returns_[s];
          changes |= add(callee, classes);
        }
      }
    }
    for (State s = 0; s < num_states(); ++s) {
      if (automaton_.accepts(s) && (first[s] & returns_[s]).any()) return false;
    }
    return true;
  }

  void AddLevel(int level, std::span<const int32_t> entries) {
    for (State s = 0; s < num_states(); ++s) {
      made_->more_.push_back(more_[s]);
      made_->to_end_.push_back(automaton_.accepts(s) ? 0
                                                     : costs_.More(s, level));
      for (int c = 0; c < num_classes(); ++c) {
        const int32_t entry = entries[size_t(s) * num_classes() + c];
        const bool returns = entry == PushdownTables::kNone &&
                             automaton_.accepts(s) && returns_[s][c];
        made_->next_.push_back(returns ? PushdownTables::kReturn : entry);
      }
    }
  }

  const PushdownAutomaton& automaton_;
  const PushdownCosts& costs_;
  std::unique_ptr<PushdownArrays> made_{new PushdownArrays};
  int64_t num_steps_ = 0;
  size_t most_calls_ = 0;
  std::vector<int32_t> more_;  // [num_states]  at one level
  std::vector<Classes> returns_;
  // The range in made_->pushed_ of what some calls push.
  std::vector<std::pair<int32_t, int16_t>> calls_;
  std::map<std::vector<State>, int32_t> call_numbers_;
  std::map<std::pair<int64_t, int64_t>, int32_t> numbers_;  // in moves_
};

std::unique_ptr<const PushdownArrays> PushdownArrays::Make(
    const PushdownAutomaton& automaton, const PushdownCosts& costs) {
  return Maker(automaton, costs).Make();
}

void PushdownArrays::SetTables(ConstraintTables* tables) const {
  tables->num_states = static_cast<int>(accepts_.size());
  tables->num_classes = num_classes_;
  tables->classes = classes_.data();
  tables->accepts = accepts_.data();
  PushdownTables& stacks = tables->stacks;
  stacks.num_levels = num_levels_;
  stacks.max_depth = max_depth_;
  stacks.num_moves = static_cast<int>(moves_.size());
  stacks.num_pushed = static_cast<int>(pushed_.size());
  stacks.next = next_.data();
  stacks.more = more_.data();
  stacks.to_end = to_end_.data();
  stacks.moves = moves_.data();
  stacks.pushed = pushed_.data();
  stacks.counters = counters_.empty() ? nullptr : counters_.data();
  stacks.num_limits = static_cast<int>(limits_.size());
  stacks.limits = limits_.data();
}

void PushdownArrays::FindFrames(std::span<const State> stack,
                                PushdownFrame* frames) const {
  ConstraintTables tables;
  SetTables(&tables);
  for (size_t i = 0; i < stack.size(); ++i) {
    const PushdownFrame below = i > 0 ? frames[i - 1] : PushdownFrame();
    frames[i] = FrameAbove(tables.stacks, tables.num_states, accepts_.data(),
                           below, static_cast<int>(i), stack[i]);
  }
}

int64_t PushdownArrays::num_bytes() const {
  return static_cast<int64_t>(accepts_.size() +
                              (next_.size() + more_.size() + to_end_.size() +
                               pushed_.size() + limits_.size()) *
                                  4 +
                              moves_.size() * sizeof(PushdownTables::Move) +
                              counters_.size() *
                                  sizeof(PushdownTables::Counter));
}

}  // namespace espalier
