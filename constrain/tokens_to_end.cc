#include "constrain/tokens_to_end.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "constrain/pushdown_automaton.h"

namespace espalier {
namespace {

using State = ByteAutomaton::State;

// The transitions of an automaton, by their ends.
class Sources {
 public:
  template <typename Automaton>
  explicit Sources(const Automaton& automaton)
      : first_(automaton.num_states() + 1) {
    const State num_states = automaton.num_states();
    ForEach(automaton, [&](State, int, State to) { ++first_[to + 1]; });
    for (State s = 0; s < num_states; ++s) first_[s + 1] += first_[s];
    std::vector<int32_t> end(first_.begin(), first_.end() - 1);
    classes_.resize(first_.back());
    sources_.resize(first_.back());
    ForEach(automaton, [&](State from, int byte_class, State to) {
      classes_[end[to]] = static_cast<uint8_t>(byte_class);
      sources_[end[to]++] = from;
    });
  }

  // Calls visit(source, byte_class) for each transition to `state`, by source.
  template <typename Visit>
  void ForEachTo(State state, const Visit& visit) const {
    for (int32_t i = first_[state]; i < first_[state + 1]; ++i) {
      visit(sources_[i], classes_[i]);
    }
  }

 private:
  // Calls visit(from, byte_class, to) for each transition, by `from`.
  template <typename Automaton, typename Visit>
  static void ForEach(const Automaton& automaton, const Visit& visit) {
    for (State from = 0; from < automaton.num_states(); ++from) {
      for (int c = 0; c < automaton.num_classes(); ++c) {
        const State to = automaton.NextByClass(from, c);
        if (to != ByteAutomaton::kNone) visit(from, c, to);
      }
    }
  }

  std::vector<int32_t> first_;  // [num_states + 1]
  // [transitions]  by their ends
  std::vector<uint8_t> classes_;
  std::vector<State> sources_;
};

// Bytes that tokens have together, from few to many: letters; with spaces; with
// digits and beyond ASCII; all but those that usually enclose texts.
constexpr int kNumByteSets = 4;
std::array<uint64_t, kNumByteSets> ByteSets() {
  std::array<uint64_t, kNumByteSets> sets = {};
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    const uint64_t bit = TokenSuffixes::BitOf(byte);
    const int lower = byte | 0x20;
    const bool is_letter = lower >= 'a' && lower <= 'z';
    const bool is_digit = byte >= '0' && byte <= '9';
    if (is_letter) sets[0] |= bit;
    if (is_letter || byte == ' ') sets[1] |= bit;
    if (is_letter || byte == ' ' || is_digit || byte >= 0x80) sets[2] |= bit;
    if (byte >= ' ' && byte != '"' && byte != '\\') sets[3] |= bit;
  }
  return sets;
}

// Sets of states, each once, and the set before each of them by a byte: a
// deterministic automaton that reads texts backwards, as far as it is asked for
// (Rabin and Scott 1959).
class SetsBefore {
 public:
  struct Set {
    const std::vector<State>* states = nullptr;  // ascending
    // [num_classes]  The sets before it, or kEmpty; no elements: unknown.
    std::vector<int32_t> before = {};
    size_t num_found = 0;  // states from this index on may not be found yet
    // For states from which few bytes of one of ByteSets lead to the set.
    struct Origins {
      // Bits of the bytes that may follow states which are not found, or more.
      uint64_t bits = ~uint64_t{0};
      State not_found = ByteAutomaton::kNone;  // one that was not, if set
    };
    std::array<Origins, kNumByteSets> origins = {};
  };
  static constexpr int32_t kEmpty = -1;

  SetsBefore(const Sources* sources, int num_classes)
      : sources_(*sources), by_class_(num_classes) {}

  // Forgets all sets. Returns the one of `states`, ascending.
  int32_t Start(std::vector<State> states) {
    numbers_.clear();
    sets_.clear();
    return Intern(std::move(states));
  }
  Set& operator[](int32_t number) { return sets_[number]; }
  // Returns the set before `number` by a byte; kEmpty: no state is.
  //   steps  is lowered by the work, which is done once for a set
  int32_t Before(int32_t number, int byte_class, int64_t* steps) {
    if (sets_[number].before.empty()) Expand(number, steps);
    return sets_[number].before[byte_class];
  }

 private:
  struct Hash {
    size_t operator()(const std::vector<State>& states) const {
      return HashOf(
          std::string_view(reinterpret_cast<const char*>(states.data()),
                           states.size() * sizeof(State)));
    }
  };

  int32_t Intern(std::vector<State> states) {
    const auto [it, is_new] = numbers_.try_emplace(
        std::move(states), static_cast<int32_t>(sets_.size()));
    if (is_new) sets_.push_back({.states = &it->first});
    return it->second;
  }

  void Expand(int32_t number, int64_t* steps) {
    size_t num_edges = 0;
    for (const State state : *sets_[number].states) {
      sources_.ForEachTo(state, [&](State source, int byte_class) {
        by_class_[byte_class].push_back(source);
        ++num_edges;
      });
    }
    *steps -= static_cast<int64_t>(num_edges + by_class_.size());
    std::vector<int32_t> before(by_class_.size(), kEmpty);
    for (size_t c = 0; c < by_class_.size(); ++c) {
      if (by_class_[c].empty()) continue;
      std::ranges::sort(by_class_[c]);
      before[c] = Intern(by_class_[c]);
      by_class_[c].clear();
    }
    sets_[number].before = std::move(before);
  }

  const Sources& sources_;
  std::vector<Set> sets_;
  std::unordered_map<std::vector<State>, int32_t, Hash> numbers_;
  std::vector<std::vector<State>> by_class_;  // [num_classes]  in Expand
};

// An automaton with counters without the transitions that a count may rule out.
// Each text of it can be completed from any count, so that numbers of tokens
// need no counts.
class SureAutomaton {
 public:
  explicit SureAutomaton(const PushdownAutomaton& automaton)
      : automaton_(automaton) {}
  int num_states() const { return automaton_.num_states(); }
  int num_classes() const { return automaton_.num_classes(); }
  int ClassOf(uint8_t byte) const { return automaton_.ClassOf(byte); }
  bool accepts(State state) const { return automaton_.accepts(state); }
  State NextByClass(State state, int byte_class) const {
    const State next = automaton_.NextByClass(state, byte_class);
    return next == PushdownAutomaton::kNone ||
                   automaton_.IsSure(state, byte_class)
               ? next
               : PushdownAutomaton::kNone;
  }

 private:
  const PushdownAutomaton& automaton_;
};

template <typename Automaton>
class Search {
 public:
  Search(Automaton automaton, const TokenSuffixes& tokens)
      : automaton_(automaton),
        tokens_(tokens),
        sources_(automaton),
        byte_sets_(ByteSets()),
        is_token_(automaton.num_classes()),
        bits_of_class_(automaton.num_classes()),
        sets_(&sources_, automaton.num_classes()),
        path_(tokens.max_depth() + 1),
        bits_after_(automaton.num_states()),
        visited_(automaton.num_states()) {
    for (size_t i = 0; i < tokens.nodes().size();
         i = tokens.nodes()[i].subtree_end) {
      if (!tokens.nodes()[i].is_token) continue;
      is_token_[automaton.ClassOf(tokens.nodes()[i].byte)] = 1;
    }
    for (int i = 0; i < 256; ++i) {
      const auto byte = static_cast<uint8_t>(i);
      bits_of_class_[automaton.ClassOf(byte)] |= TokenSuffixes::BitOf(byte);
    }
    if (tokens.max_depth() == 1) return;  // they are of FindByMany
    for (State s = 0; s < automaton.num_states(); ++s) {
      for (int c = 0; c < automaton.num_classes(); ++c) {
        if (automaton.NextByClass(s, c) == ByteAutomaton::kNone) continue;
        bits_after_[s] |= bits_of_class_[c];
      }
    }
  }

  //   calls  by `from`
  TokensToEnd Run(std::span<const CountedEdge> calls, int64_t max_steps) {
    more_.assign(automaton_.num_states(), TokensToEnd::kNever);
    calls_to_.clear();
    for (const CountedEdge& call : calls) calls_to_.emplace(call.to, call);
    callers_.clear();
    // Leaves steps for states before those with many tokens.
    const int64_t max_steps_at_once = max_steps / 8;
    bool is_exact = true;
    std::vector<State> targets;
    for (State s = 0; s < automaton_.num_states(); ++s) {
      if (automaton_.accepts(s)) targets.push_back(s);
    }
    AddCallers(targets, 0);
    for (int32_t number = 1;
         number < TokensToEnd::kNever && !(targets.empty() && callers_.empty());
         ++number) {
      if (targets.empty()) number = callers_.begin()->first;
      found_.clear();
      FindByOneByte(targets, number);
      if (!targets.empty() && tokens_.max_depth() > 1) {
        std::ranges::sort(targets);
        const int32_t root = sets_.Start(std::move(targets));
        int64_t steps = std::min(max_steps, max_steps_at_once);
        max_steps -= steps;
        if (!FindByMany(root, number, &steps)) is_exact = false;
        max_steps += std::max<int64_t>(steps, 0);
      }
      FindCallers(number);
      targets = std::move(found_);
      AddCallers(targets, number);
    }
    return {std::move(more_), is_exact};
  }

 private:
  int32_t Before(int32_t set, size_t node, int64_t* steps) {
    return sets_.Before(set, automaton_.ClassOf(tokens_.nodes()[node].byte),
                        steps);
  }

  void FindByOneByte(const std::vector<State>& targets, int32_t number) {
    for (const State target : targets) {
      sources_.ForEachTo(target, [&](State source, int byte_class) {
        if (is_token_[byte_class] != 0) Find(source, number);
      });
    }
  }

  // Returns false if the steps do not suffice.
  bool FindByMany(int32_t root, int32_t number, int64_t* steps) {
    const std::span<const TokenSuffixes::Node> nodes = tokens_.nodes();
    for (size_t i = 0; i < nodes.size();) {
      const TokenSuffixes::Node& node = nodes[i];
      if (--*steps < 0) return false;
      const int32_t before =
          Before(node.depth == 0 ? root : path_[node.depth - 1], i, steps);
      path_[node.depth] = before;
      if (before == SetsBefore::kEmpty) {
        i = node.subtree_end;
        continue;
      }
      if (node.is_token) FindAll(before, number);
      const bool is_leaf = node.subtree_end == i + 1;
      i = is_leaf || CanSkipSubtree(i, before, steps) ? node.subtree_end
                                                      : i + 1;
    }
    return true;
  }

  // True if no token below the node can lead to the set from a state that is
  // not found yet, so that the search may leave the node's subtree out. Checked
  // only for nodes whose tokens have all their bytes in one of byte_sets_:
  // true if all states are found from which such bytes lead to the set.
  bool CanSkipSubtree(size_t node, int32_t set, int64_t* steps) {
    const TokenSuffixes::Bits& bits = tokens_.bits_below(node);
    for (int i = 0; i < kNumByteSets; ++i) {
      if ((bits.all & ~byte_sets_[i]) != 0) continue;
      SetsBefore::Set::Origins& origins = sets_[set].origins[i];
      if ((bits.first & origins.bits) == 0) return true;
      if (origins.not_found == ByteAutomaton::kNone ||
          !IsNotFound(origins.not_found, bits.first)) {
        FindOrigins(*sets_[set].states, byte_sets_[i], bits.first, &origins,
                    steps);
      }
      return (bits.first & origins.bits) == 0;
    }
    return false;
  }

  // Sets `origins->not_found` to a state that a byte with one of the bits
  // `first` may follow, and from which few bytes with `bits` lead to one of
  // `states`. If there is none, sets `origins->bits`.
  void FindOrigins(std::span<const State> states, uint64_t bits, uint64_t first,
                   SetsBefore::Set::Origins* origins, int64_t* steps) {
    ++num_searches_;
    queue_.assign(states.begin(), states.end());
    for (const State state : states) visited_[state] = num_searches_;
    uint64_t bits_after = 0;
    size_t begin = 0;
    for (int depth = 0; depth <= TokenSuffixes::kHigh; ++depth) {
      const size_t end = queue_.size();
      for (; begin < end; ++begin) {
        const State state = queue_[begin];
        if (IsNotFound(state, first)) {
          origins->not_found = state;
          return;
        }
        if (!IsFound(state)) bits_after |= bits_after_[state];
        sources_.ForEachTo(state, [&](State source, int byte_class) {
          --*steps;
          if ((bits_of_class_[byte_class] & bits) == 0 ||
              visited_[source] == num_searches_) {
            return;
          }
          visited_[source] = num_searches_;
          queue_.push_back(source);
        });
      }
    }
    origins->bits = bits_after;
  }

  // True if a state is not found, and a byte with one of the bits may follow.
  bool IsNotFound(State state, uint64_t bits) const {
    return !IsFound(state) && (bits_after_[state] & bits) != 0;
  }

  bool IsFound(State state) const {
    return more_[state] != TokensToEnd::kNever;
  }

  void FindAll(int32_t number_of_set, int32_t number) {
    SetsBefore::Set& set = sets_[number_of_set];
    for (; set.num_found < set.states->size(); ++set.num_found) {
      Find((*set.states)[set.num_found], number);
    }
  }

  void Find(State state, int32_t number) {
    if (IsFound(state)) return;
    more_[state] = number;
    if (!automaton_.accepts(state)) found_.push_back(state);
    if (calls_to_.empty()) return;
    ForEachCallTo(state, [&](const CountedEdge& call) {
      if (call.count == 0) callers_[number].push_back(call.from);
    });
  }

  template <typename Visit>
  void ForEachCallTo(State state, const Visit& visit) const {
    const auto [begin, end] = calls_to_.equal_range(state);
    for (auto it = begin; it != end; ++it) visit(it->second);
  }

  // States of `number` tokens: those that call before them have more.
  void AddCallers(const std::vector<State>& states, int32_t number) {
    if (calls_to_.empty()) return;
    for (const State state : states) {
      ForEachCallTo(state, [&](const CountedEdge& call) {
        if (call.count == 0 || call.count >= TokensToEnd::kNever - number) {
          return;
        }
        callers_[number + call.count].push_back(call.from);
      });
    }
  }

  void FindCallers(int32_t number) {
    const auto callers = callers_.find(number);
    if (callers == callers_.end()) return;
    // Finds more of this number while it is read.
    for (size_t i = 0; i < callers->second.size(); ++i) {
      Find(callers->second[i], number);
    }
    callers_.erase(callers);
  }

  const Automaton automaton_;
  const TokenSuffixes& tokens_;
  const Sources sources_;
  const std::array<uint64_t, kNumByteSets> byte_sets_;
  std::vector<uint8_t> is_token_;        // [num_classes]  one of its bytes is
  std::vector<uint64_t> bits_of_class_;  // [num_classes]
  SetsBefore sets_;
  std::vector<int32_t> more_;
  std::vector<State> found_;   // non-accepting ones of the present number
  std::vector<int32_t> path_;  // sets before each byte of a node
  std::vector<State> queue_;   // in FindOrigins
  std::vector<uint64_t> bits_after_;  // [num_states]  bits of bytes that follow
  std::vector<int> visited_;  // [num_states]  last search that visited it
  int num_searches_ = 0;
  std::unordered_multimap<State, CountedEdge> calls_to_;  // by their ends
  // States that a call leads from, not found yet, by their numbers.
  std::map<int32_t, std::vector<State>> callers_;
};

}  // namespace

TokensToEnd CountTokensToEnd(const ByteAutomaton& automaton,
                             const TokenSuffixes& tokens, int64_t max_steps) {
  return Search<const ByteAutomaton&>(automaton, tokens).Run({}, max_steps);
}

CountTokensWithCalls TokenCounter(const PushdownAutomaton& automaton,
                                  const TokenSuffixes& tokens) {
  const auto counter = [&](auto search) -> CountTokensWithCalls {
    return [search](std::span<const CountedEdge> calls, int64_t max_steps) {
      return search->Run(calls, max_steps);
    };
  };
  if (automaton.has_counters()) {
    return counter(std::make_shared<Search<SureAutomaton>>(
        SureAutomaton(automaton), tokens));
  }
  return counter(
      std::make_shared<Search<const PushdownAutomaton&>>(automaton, tokens));
}

}  // namespace espalier
