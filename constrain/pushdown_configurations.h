// PushdownConfigurations: the positions in texts of a PushdownAutomaton. A
// configuration is all that the rest of a text depends on: the states that the
// text so far leads to, each with its stack, because an ambiguous grammar may
// read a text in several ways at once. A configuration is a number, so a copy
// of it forks the position in a text. It is made when a text first leads to it,
// and kept, with its transitions, so a second visit costs a load.
//
//   State state = configurations.Next(kStart, '(');
//
// Stacks share their parts: a node is a set of stacks of one height, by the
// state on top, with the node of the stacks below each of them (a
// graph-structured stack, Tomita 1987). Equal sets are one node, so equal
// configurations are one number.
//
// Only states and stacks exist from which a text of the language can be
// completed.
//
// Thread safety: any thread may call; a transition that is made already takes
// no lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "constrain/byte_automaton.h"
#include "constrain/pushdown_automaton.h"
#include "constrain/pushdown_costs.h"

namespace espalier {

class PushdownConfigurations {
 public:
  using State = int32_t;
  static constexpr State kNone = -1;
  // The grammar is too ambiguous: more ways than kMaxWays to read the text,
  // more than kMaxSteps to follow them by a byte, or there are too many
  // configurations. What may follow is not known.
  static constexpr State kTooMany = -2;
  static constexpr State kStart = 0;
  static constexpr int32_t kNever = PushdownCosts::kNever;
  static constexpr int kMaxWays = 256;
  static constexpr int64_t kMaxSteps = 1 << 18;

  //   costs  the fewest of the automaton, in bytes or tokens
  //   reach  bytes of the longest token
  PushdownConfigurations(std::shared_ptr<const PushdownAutomaton> automaton,
                         PushdownCosts costs, int64_t reach = 1);
  ~PushdownConfigurations();

  const PushdownAutomaton& automaton() const { return *automaton_; }
  // False if the language is too ambiguous at its start, as kTooMany is; then
  // nothing leads from kStart.
  bool has_start() const { return has_start_; }

  // Returns the configuration after `byte`; kNone if no text of the language
  // has it there; kTooMany. REQUIRES: `state` is a configuration.
  State Next(State state, uint8_t byte) const {
    const int byte_class = automaton_->ClassOf(byte);
    const State next =
        RecordOf(state).next[byte_class].load(std::memory_order_acquire);
    return next != kUnknown ? next : MakeNext(state, byte_class);
  }
  // Returns the steps that it took to make Next(state, byte), rounded up to a
  // power of two; one is some nanoseconds. They depend on the language and the
  // text alone, not on what was made before. REQUIRES: Next() was called so.
  int64_t StepsOf(State state, uint8_t byte) const {
    return int64_t{1} << RecordOf(state).log_steps[automaton_->ClassOf(byte)];
  }
  // As Next() above, for one byte after the other.
  State Next(State state, std::string_view bytes) const;

  // Returns the configuration of which the same tokens are legal, and which
  // differs in the counts alone: one for all counts that are far from limits.
  // Needs differ as min_more does. REQUIRES: `state` is a configuration.
  State Similar(State state) const {
    if (!automaton_->has_counters()) return state;
    const State similar =
        RecordOf(state).similar.load(std::memory_order_acquire);
    return similar != kUnknown ? similar : MakeSimilar(state);
  }

  // True if a text of the language ends here.
  bool accepts(State state) const { return RecordOf(state).accepts; }
  // True if nothing may follow: only the end of the text.
  bool ends(State state) const { return RecordOf(state).ways.empty(); }
  // Returns an upper bound of the fewest to where a text may end, at least one;
  // kNever if there is none. From a configuration with more than one, a byte or
  // token leads to one that accepts or has fewer.
  int32_t min_more(State state) const { return RecordOf(state).more; }
  // As above, 0 where a text may end.
  int32_t min_to_end(State state) const {
    return accepts(state) ? 0 : min_more(state);
  }
  // With costs in bytes, for texts of bytes.
  int32_t min_bytes(State state) const { return min_to_end(state); }
  // Returns the bytes of a configuration with its transitions, and of the
  // stacks that were made to reach it.
  int64_t num_bytes_of(State state) const;

  // As for ByteAutomaton. No byte is known to follow where there are too many.
  std::vector<uint8_t> BytesAfter(State state) const;
  struct MatchResult : ByteAutomaton::MatchResult {
    bool is_known = true;  // false: too many
  };
  MatchResult Match(std::string_view text) const;

  // Sets the state, count and stack, the oldest return first, from which calls
  // and returns lead to the ways of a configuration. Returns false if there are
  // several.
  bool FindOrigin(State state, PushdownAutomaton::State* origin, int64_t* count,
                  std::vector<PushdownAutomaton::State>* stack) const;

  // Returns the number of ways to read the text so far.
  int num_ways(State state) const {
    return static_cast<int>(RecordOf(state).ways.size());
  }

  // Configurations so far, and the bytes of all.
  int64_t num_configurations() const;
  int64_t num_bytes() const;
  const PushdownCosts& costs() const { return costs_; }

 private:
  static constexpr State kUnknown = -3;
  static constexpr int kChunkBits = 12;
  static constexpr int kChunkSize = 1 << kChunkBits;
  static constexpr int kMaxChunks = 1 << 12;

  // A state of the automaton, the number of a node, and the counter's count.
  struct Way {
    PushdownAutomaton::State state = 0;
    int32_t node = 0;
    int64_t count = 0;
    friend auto operator<=>(const Way&, const Way&) = default;
  };
  // The stacks of one height. Without edges: the empty stack.
  struct Node {
    int height = 0;
    int32_t cost = 0;  // the fewest from the returns to the end
    // By the state on top, ascending, each once; the node below it.
    std::vector<Way> edges;
  };
  struct Record {
    std::vector<Way> ways;  // ascending; only those that read bytes
    bool accepts = false;
    int32_t more = kNever;
    // The only way before calls and returns, if there is one; guarded by mutex_
    // of the configurations.
    Way origin = {.state = kNone};
    std::unique_ptr<std::atomic<State>[]> next;  // [num_classes]
    // [num_classes]  Written before `next`.
    std::unique_ptr<uint8_t[]> log_steps;
    mutable std::atomic<int64_t> node_bytes = 0;
    mutable std::atomic<State> similar = kUnknown;
  };
  struct Chunk {
    std::array<std::unique_ptr<Record>, kChunkSize> records;
  };
  // The ways of a new configuration.
  struct Closure;
  // The steps and unions of a transition so far.
  struct Work {
    // To visit a way, or to look a node up, against copying an edge.
    static constexpr int64_t kVisit = 16;
    bool is_spent() const { return num_steps > kMaxSteps; }
    int64_t num_steps = 0;
    // Unions of several nodes, by these, ascending.
    std::map<std::vector<int32_t>, int32_t> unions;
  };

  const Record& RecordOf(State state) const {
    return *chunks_[state >> kChunkBits]
                .load(std::memory_order_acquire)
                ->records[state & (kChunkSize - 1)];
  }
  State MakeNext(State state, int byte_class) const;
  State MakeSimilar(State state) const;
  // Returns the configuration of these ways and of those that calls and returns
  // lead to.
  State Add(std::vector<Way> ways, Work* work) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Appends what calls and returns lead to. Returns false if that is too much.
  bool Close(std::vector<Way> ways, Closure* closure, Work* work) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the ways with one state, count and height one. Sorts them.
  void Merge(std::vector<Way>* ways, Work* work) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::tuple<PushdownAutomaton::State, int64_t, int> KeyOf(const Way& way) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {way.state, way.count, nodes_[way.node].height};
  }
  // Returns the node of the stacks of all `nodes`, which have one height; any
  // node if the work is spent.
  int32_t Union(std::vector<int32_t> nodes, Work* work) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int32_t Intern(Node node) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  State InternRecord(std::vector<Way> ways, bool accepts, int32_t more) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Room for calls above a stack.
  int LevelsAbove(int height) const { return automaton_->max_depth() - height; }
  // True if from a state above a stack of `height` its text can be completed.
  bool IsLive(PushdownAutomaton::State state, int height) const {
    return automaton_->accepts(state) ||
           automaton_->bytes().More(state, LevelsAbove(height)) != kNever;
  }
  // For states of automata without a counter.
  int32_t CostOf(PushdownAutomaton::State state, int height) const {
    return automaton_->accepts(state) ? 0
                                      : costs_.More(state, LevelsAbove(height));
  }
  int32_t MoreOf(const Way& way, int height) const {
    return std::max(costs_.More(way.state, LevelsAbove(height)),
                    automaton_->MoreBelowLeast(way.state, way.count));
  }

  const std::shared_ptr<const PushdownAutomaton> automaton_;
  const PushdownCosts costs_;
  const int64_t reach_;
  const std::unique_ptr<std::atomic<Chunk*>[]> chunks_;  // [kMaxChunks]

  bool has_start_ = false;

  mutable std::mutex mutex_;
  mutable std::vector<Node> nodes_ ABSL_GUARDED_BY(mutex_);
  // By hashes of their contents.
  mutable std::unordered_multimap<uint64_t, int32_t> node_numbers_
      ABSL_GUARDED_BY(mutex_);
  mutable std::unordered_multimap<uint64_t, State> numbers_
      ABSL_GUARDED_BY(mutex_);
  mutable State num_records_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable int64_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
