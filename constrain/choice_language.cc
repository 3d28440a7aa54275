#include "constrain/choice_language.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "constrain/automaton_builder.h"
#include "constrain/dfa_edges.h"

namespace espalier {
namespace {

// A state with the edges that leave it.
struct Node {
  struct Edge {
    uint32_t byte;
    int32_t to;
    friend bool operator==(const Edge&, const Edge&) = default;
  };
  bool accepts = false;
  std::vector<Edge> edges;  // ascending by byte

  friend bool operator==(const Node&, const Node&) = default;
};

struct NodeHash {
  size_t operator()(const Node& node) const {
    const std::string_view bytes(
        reinterpret_cast<const char*>(node.edges.data()),
        node.edges.size() * sizeof(Node::Edge));
    return HashOf(bytes) + (node.accepts ? 1 : 0);
  }
};

// The minimal automaton of texts that are added in ascending order. Nodes of
// the last text's path may still get edges; all others are final and distinct.
class ChoiceBuilder {
 public:
  explicit ChoiceBuilder(CompileBudget* budget) : budget_(*budget) {}

  // REQUIRES: `text` is greater than the one before.
  absl::Status Add(std::string_view text) {
    // A text of n bytes has n + 1 states.
    RETURN_IF_ERROR(budget_.CheckStates(static_cast<int64_t>(text.size()) + 1));
    const size_t num_common =
        std::mismatch(text.begin(), text.end(), last_.begin(), last_.end())
            .first -
        text.begin();
    RETURN_IF_ERROR(
        budget_.Take(1 + static_cast<int64_t>(text.size() + last_.size())));
    RETURN_IF_ERROR(Close(num_common));
    path_.resize(text.size() + 1);
    path_.back().accepts = true;
    last_ = text;
    return absl::OkStatus();
  }

  absl::StatusOr<DfaEdges> Finish() {
    RETURN_IF_ERROR(Close(0));
    DfaEdges dfa;
    dfa.num_classes = 256;
    std::iota(dfa.classes.begin(), dfa.classes.end(), uint8_t{0});
    dfa.accepts.assign(numbers_.size() + 1, 0);
    AddTo(path_.front(), 0, &dfa);
    for (const auto& [node, number] : numbers_) AddTo(node, number, &dfa);
    return dfa;
  }

 private:
  static void AddTo(const Node& node, int32_t number, DfaEdges* dfa) {
    dfa->accepts[number] = node.accepts ? 1 : 0;
    for (const Node::Edge& edge : node.edges) {
      dfa->Add(number, edge.byte, edge.byte, edge.to);
    }
  }

  // Makes the nodes after the first `num_bytes` of the last text final. Number
  // 0 is the start's.
  absl::Status Close(size_t num_bytes) {
    for (size_t i = path_.size() - 1; i > num_bytes; --i) {
      RETURN_IF_ERROR(
          budget_.CheckStates(static_cast<int64_t>(numbers_.size())));
      const int32_t next = static_cast<int32_t>(numbers_.size()) + 1;
      const auto [entry, is_new] =
          numbers_.try_emplace(std::move(path_[i]), next);
      path_[i - 1].edges.push_back(
          {static_cast<uint8_t>(last_[i - 1]), entry->second});
      path_.pop_back();
    }
    return absl::OkStatus();
  }

  CompileBudget& budget_;
  std::vector<Node> path_ = {Node()};  // after 0, 1, ... bytes of the last text
  std::string_view last_;
  std::unordered_map<Node, int32_t, NodeHash> numbers_;  // final nodes
};

}  // namespace

absl::StatusOr<ByteAutomaton> CompileChoice(std::span<const std::string> texts,
                                            CompileBudget* budget) {
  if (texts.empty()) return InvalidArgument("there must be a text, got none");
  std::vector<std::string_view> sorted(texts.begin(), texts.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  ChoiceBuilder builder(budget);
  for (const std::string_view text : sorted) {
    RETURN_IF_ERROR(builder.Add(text));
  }
  ASSIGN_OR_RETURN(DfaEdges dfa, builder.Finish());
  return BuildAutomaton(std::move(dfa), budget);
}

absl::StatusOr<ByteAutomaton> CompileChoice(std::span<const std::string> texts,
                                            const CompileLimits& limits) {
  CompileBudget budget(limits);
  return CompileChoice(texts, &budget);
}

}  // namespace espalier
