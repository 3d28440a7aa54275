#include "constrain/automaton_algebra.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "constrain/automaton_builder.h"
#include "constrain/dfa_edges.h"
#include "constrain/number_table.h"

namespace espalier {
namespace {

// Bytes that all of some automata treat alike are of one class.
struct CommonClasses {
  explicit CommonClasses(std::span<const ByteAutomaton* const> automata) {
    bytes = {0};
    for (const ByteAutomaton* const automaton : automata) {
      const size_t num_classes = automaton->num_classes();
      // Numbers of pairs of a class before and one of the automaton.
      std::vector<int> numbers(bytes.size() * num_classes, -1);
      bytes.clear();
      for (int i = 0; i < 256; ++i) {
        const auto byte = static_cast<uint8_t>(i);
        int& number =
            numbers[classes[i] * num_classes + automaton->ClassOf(byte)];
        if (number < 0) {
          number = static_cast<int>(bytes.size());
          bytes.push_back(byte);
        }
        classes[i] = static_cast<uint8_t>(number);
      }
    }
  }

  std::array<uint8_t, 256> classes = {};
  std::vector<uint8_t> bytes;  // one of each class
};

// Different lists of one size, numbered in the order of their first appearance.
template <typename T>
class NumberedLists {
 public:
  explicit NumberedLists(size_t size) : size_(size) {}

  int32_t num() const { return num_; }
  std::span<const T> Of(int32_t number) const {
    return std::span(all_).subspan(size_ * static_cast<size_t>(number), size_);
  }
  // Returns the number of a list, perhaps a new one.
  int32_t NumberOf(std::span<const T> list) {
    const uint64_t hash = HashOf(std::string_view(
        reinterpret_cast<const char*>(list.data()), list.size_bytes()));
    const int32_t number = numbers_.FindOrAdd(hash, num_, [&](int32_t other) {
      return std::ranges::equal(Of(other), list);
    });
    if (number == num_) {
      all_.insert(all_.end(), list.begin(), list.end());
      ++num_;
    }
    return number;
  }

 private:
  size_t size_;
  int32_t num_ = 0;
  std::vector<T> all_;
  NumberTable numbers_;
};

// Explores the product of automata.
class AutomataProduct {
 public:
  using Decide = absl::FunctionRef<Truth(std::span<const Truth>)>;

  AutomataProduct(std::vector<const ByteAutomaton*> automata, Decide decide)
      : automata_(std::move(automata)),
        decide_(decide),
        classes_(automata_),
        combinations_(automata_.size()),
        decided_(automata_.size() - 1),
        truths_(automata_.size() - 1) {}

  absl::StatusOr<DfaEdges> Run(CompileBudget* budget) {
    const int num_classes = static_cast<int>(classes_.bytes.size());
    const int64_t steps =
        100 + (4 + 2 * static_cast<int64_t>(automata_.size())) * num_classes;
    DfaEdges dfa = {.classes = classes_.classes, .num_classes = num_classes};
    std::vector<State> states(automata_.size(), ByteAutomaton::kStart);
    combinations_.NumberOf(states);
    for (int32_t i = 0; i < combinations_.num(); ++i) {
      RETURN_IF_ERROR(budget->Take(steps));
      // Minimization may merge states, so more of them are allowed here.
      RETURN_IF_ERROR(budget->CheckStates(i / 4));
      dfa.accepts.push_back(Accepts(combinations_.Of(i)) ? 1 : 0);
      // Neighbouring classes often lead to the same states.
      int32_t number = -1;
      for (int c = 0; c < num_classes; ++c) {
        if (!Advance(combinations_.Of(i), classes_.bytes[c], &states)) continue;
        if (number < 0 ||
            !std::ranges::equal(combinations_.Of(number), states)) {
          number = combinations_.NumberOf(states);
        }
        dfa.Add(i, c, c, number);
      }
    }
    return dfa;
  }

 private:
  using State = ByteAutomaton::State;

  bool Accepts(std::span<const State> states) {
    if (!automata_[0]->accepts(states[0])) return false;
    for (size_t i = 1; i < states.size(); ++i) {
      const bool is_in =
          states[i] != ByteAutomaton::kNone && automata_[i]->accepts(states[i]);
      truths_[i - 1] = is_in ? Truth::kTrue : Truth::kFalse;
    }
    return Outcome() == Truth::kTrue;
  }

  // Returns false if no text that begins so is in the language.
  bool Advance(std::span<const State> from, uint8_t byte,
               std::vector<State>* to) {
    for (size_t i = 0; i < from.size(); ++i) {
      (*to)[i] = from[i] == ByteAutomaton::kNone
                     ? ByteAutomaton::kNone
                     : automata_[i]->Next(from[i], byte);
      if (i == 0) continue;
      truths_[i - 1] =
          (*to)[i] == ByteAutomaton::kNone ? Truth::kFalse : Truth::kUnknown;
    }
    return (*to)[0] != ByteAutomaton::kNone && Outcome() != Truth::kFalse;
  }

  // Decides once for each list of truths.
  Truth Outcome() {
    const size_t number = decided_.NumberOf(truths_);
    if (number == decisions_.size()) decisions_.push_back(decide_(truths_));
    return decisions_[number];
  }

  const std::vector<const ByteAutomaton*> automata_;  // the universe first
  const Decide decide_;
  const CommonClasses classes_;
  // The automata's states after the same bytes.
  NumberedLists<State> combinations_;
  NumberedLists<Truth> decided_;
  std::vector<Truth> decisions_;  // by number in decided_
  std::vector<Truth> truths_;
};

}  // namespace

absl::StatusOr<std::optional<ByteAutomaton>> CombineAutomata(
    const ByteAutomaton& universe,
    std::span<const ByteAutomaton* const> automata,
    absl::FunctionRef<Truth(std::span<const Truth>)> decide,
    CompileBudget* budget) {
  std::vector<const ByteAutomaton*> all = {&universe};
  all.insert(all.end(), automata.begin(), automata.end());
  RETURN_IF_ERROR(budget->Take(256 * static_cast<int64_t>(all.size())));
  ASSIGN_OR_RETURN(DfaEdges dfa,
                   AutomataProduct(std::move(all), decide).Run(budget));
  // Each state is reached from the start.
  if (std::ranges::none_of(dfa.accepts, [](uint8_t a) { return a != 0; })) {
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(ByteAutomaton automaton,
                   BuildAutomaton(std::move(dfa), budget));
  return automaton;
}

AutomatonRanges::AutomatonRanges(const ByteAutomaton& automaton)
    : num_states(automaton.num_states()) {
  // Runs of bytes of one class.
  struct Run {
    uint8_t first;
    uint8_t last;
    int byte_class;
  };
  std::vector<Run> runs;
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    const int byte_class = automaton.ClassOf(byte);
    if (i > 0 && runs.back().byte_class == byte_class) {
      runs.back().last = byte;
    } else {
      runs.push_back({byte, byte, byte_class});
    }
  }
  for (int32_t s = 0; s < num_states; ++s) {
    if (automaton.accepts(s)) accepts.push_back(s);
    bool is_adjacent = false;  // the last byte has an edge from `s`
    for (const Run& run : runs) {
      const int32_t to = automaton.NextByClass(s, run.byte_class);
      if (is_adjacent && edges.back().to == to) {
        edges.back().last = run.last;
      } else if (to != ByteAutomaton::kNone) {
        edges.push_back({s, run.first, run.last, to});
      }
      is_adjacent = to != ByteAutomaton::kNone;
    }
  }
}

absl::Status AddAutomaton(const AutomatonRanges& language, ByteNfa::State from,
                          ByteNfa::State to, ByteNfa* nfa) {
  std::vector<ByteNfa::State> states(language.num_states);
  for (ByteNfa::State& state : states) {
    ASSIGN_OR_RETURN(state, nfa->AddState());
  }
  RETURN_IF_ERROR(nfa->AddEmpty(from, states[ByteAutomaton::kStart]));
  for (const AutomatonRanges::Edge& edge : language.edges) {
    RETURN_IF_ERROR(nfa->AddBytes(states[edge.from], edge.first, edge.last,
                                  states[edge.to]));
  }
  for (const int32_t state : language.accepts) {
    RETURN_IF_ERROR(nfa->AddEmpty(states[state], to));
  }
  return absl::OkStatus();
}

}  // namespace espalier
