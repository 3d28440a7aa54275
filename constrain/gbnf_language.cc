#include "constrain/gbnf_language.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "constrain/automaton_algebra.h"
#include "constrain/byte_nfa.h"
#include "constrain/gbnf_parser.h"
#include "constrain/utf8_sets.h"

namespace espalier {

// Compiles the rules, each after those that it names. Rules that lead to one
// another are a component. In a component without recursion, each rule that
// others name becomes an automaton of its own, which is copied where it is
// named. The rules of the other components become automata that call one
// another, all of them in one NFA with one end (pushdown_automaton.h).
class GbnfCompiler {
 public:
  GbnfCompiler(Grammar grammar, CompileBudget* budget)
      : grammar_(std::move(grammar)),
        budget_(*budget),
        sets_(budget),
        calls_nfa_(budget),
        rules_(grammar_.rules.size()) {}

  absl::StatusOr<GrammarLanguage> Compile(int max_depth) {
    for (size_t i = 0; i < rules_.size(); ++i) RemoveLeftRecursion(i);
    RETURN_IF_ERROR(FindComponents());
    for (const std::vector<int>& component : components_) {
      RETURN_IF_ERROR(FindFlags(component));
    }
    const int root = grammar_.root;
    if (!rules_[root].is_productive) {
      return InvalidArgument(
          "no text is complete: each one that rule \"root\" "
          "begins goes on without end");
    }
    for (const std::vector<int>& component : components_) {
      for (const int i : component) RemoveUnproductive(&grammar_.rules[i].body);
    }
    RETURN_IF_ERROR(FindComponents());
    for (const std::vector<int>& component : components_) {
      RETURN_IF_ERROR(FindRecursion(component));
    }
    NumberCalls();
    if (num_called_ == 0) {
      for (const std::vector<int>& component : components_) {
        RETURN_IF_ERROR(CompileComponent(component));
      }
      return *std::move(rules_[root].automaton);
    }
    return CompileCalls(max_depth);
  }

 private:
  using Kind = GrammarNode::Kind;
  using State = ByteNfa::State;
  // The text continues in another rule, which has the same end.
  static constexpr State kElsewhere = -1;

  struct Rule {
    int component = -1;
    int64_t num_nodes = 0;
    bool is_productive = false;  // it has a text
    bool is_nullable = false;    // it has the empty text
    bool is_recursive = false;
    bool is_named = false;     // by a rule of another component, or the root
    bool is_in_calls = false;  // its start is in the NFA of all calls
    // Set if it is not recursive and others name it.
    std::optional<ByteAutomaton> automaton = {};
    std::optional<AutomatonRanges> ranges = {};
    int call = -1;             // number of one that is called
    State start = kElsewhere;  // in the NFA that it was last added to
  };

  // An NFA that rules are added to.
  struct Target {
    ByteNfa* nfa = nullptr;
    State end = 0;
    // Rules that are in it, and have the same end.
    int component = -1;  // kCalls: all recursive ones
    static constexpr int kCalls = -2;
  };

  static bool IsRule(const GrammarNode& node, int rule) {
    return node.kind == Kind::kRule && node.rule == rule;
  }

  // Makes of   a ::= a x | a y | z   the rule   a ::= z (x | y)*.
  void RemoveLeftRecursion(int rule) {
    GrammarNode& body = grammar_.rules[rule].body;
    std::vector<GrammarNode> alternatives;
    if (body.kind == Kind::kChoice) {
      alternatives = std::move(body.children);
    } else {
      alternatives.push_back(std::move(body));
    }
    GrammarNode firsts = {.kind = Kind::kChoice};
    GrammarNode rests = {.kind = Kind::kChoice};
    for (GrammarNode& alternative : alternatives) {
      if (IsRule(alternative, rule)) continue;  // a ::= a
      const bool is_left = alternative.kind == Kind::kSequence &&
                           !alternative.children.empty() &&
                           IsRule(alternative.children.front(), rule);
      if (is_left) alternative.children.erase(alternative.children.begin());
      (is_left ? rests : firsts).children.push_back(std::move(alternative));
    }
    if (rests.children.empty()) {
      body = std::move(firsts);
      return;
    }
    GrammarNode loop = {.kind = Kind::kRepeat};
    loop.children.push_back(std::move(rests));
    body = {.kind = Kind::kSequence};
    body.children.push_back(std::move(firsts));
    body.children.push_back(std::move(loop));
  }

  // Calls visit(rule, is_last) for each rule that a node names.
  //   is_last  nothing follows the node in its rule
  template <typename Visit>
  static void ForEachRule(const GrammarNode& node, bool is_last,
                          const Visit& visit) {
    if (node.kind == Kind::kRule) return visit(node.rule, is_last);
    const bool is_once = node.kind != Kind::kRepeat || node.max_count == 1;
    for (const GrammarNode& child : node.children) {
      const bool is_end =
          node.kind != Kind::kSequence || &child == &node.children.back();
      ForEachRule(child, is_last && is_once && is_end, visit);
    }
  }

  static int64_t NumNodes(const GrammarNode& node) {
    int64_t count = 1;
    for (const GrammarNode& child : node.children) count += NumNodes(child);
    return count;
  }

  // The strongly connected components of the rules that the root leads to, each
  // after those that it leads to (Tarjan 1972).
  absl::Status FindComponents() {
    const size_t num_rules = rules_.size();
    components_.clear();
    for (Rule& rule : rules_) rule.component = -1;
    std::vector<std::vector<int>> named(num_rules);
    for (size_t i = 0; i < num_rules; ++i) {
      const GrammarNode& body = grammar_.rules[i].body;
      rules_[i].num_nodes = NumNodes(body);
      RETURN_IF_ERROR(budget_.Take(rules_[i].num_nodes));
      ForEachRule(body, true,
                  [&](int rule, bool) { named[i].push_back(rule); });
    }
    std::vector<int> index(num_rules, -1);
    std::vector<int> low(num_rules, 0);
    std::vector<int> open;  // not yet in a component
    std::vector<std::pair<int, size_t>> path = {{grammar_.root, 0}};
    int num_visited = 0;
    while (!path.empty()) {
      const int rule = path.back().first;
      size_t& next = path.back().second;
      if (next == 0) {
        index[rule] = low[rule] = num_visited++;
        open.push_back(rule);
      }
      if (next < named[rule].size()) {
        const int to = named[rule][next++];
        if (index[to] < 0) {
          path.emplace_back(to, 0);
        } else if (rules_[to].component < 0) {
          low[rule] = std::min(low[rule], index[to]);
        }
        continue;
      }
      path.pop_back();
      if (!path.empty()) {
        const int from = path.back().first;
        low[from] = std::min(low[from], low[rule]);
      }
      if (low[rule] != index[rule]) continue;
      std::vector<int>& component = components_.emplace_back();
      for (int member = -1; member != rule;) {
        member = open.back();
        open.pop_back();
        rules_[member].component = static_cast<int>(components_.size()) - 1;
        component.push_back(member);
      }
    }
    rules_[grammar_.root].is_named = true;
    for (size_t i = 0; i < num_rules; ++i) {
      if (rules_[i].component < 0) continue;
      for (const int to : named[i]) {
        if (rules_[to].component != rules_[i].component) {
          rules_[to].is_named = true;
        }
      }
    }
    return absl::OkStatus();
  }

  bool IsProductive(const GrammarNode& node) const {
    switch (node.kind) {
      case Kind::kText:
        return true;
      case Kind::kSet:
        return !node.set.empty();
      case Kind::kRule:
        return rules_[node.rule].is_productive;
      case Kind::kRepeat:
        return node.min_count == 0 || IsProductive(node.children.front());
      case Kind::kSequence:
        return std::ranges::all_of(node.children, [&](const auto& child) {
          return IsProductive(child);
        });
      case Kind::kChoice:
        return std::ranges::any_of(node.children, [&](const auto& child) {
          return IsProductive(child);
        });
    }
    return false;
  }

  bool IsNullable(const GrammarNode& node) const {
    switch (node.kind) {
      case Kind::kText:
        return node.text.empty();
      case Kind::kSet:
        return false;
      case Kind::kRule:
        return rules_[node.rule].is_nullable;
      case Kind::kRepeat:
        return node.min_count == 0 || IsNullable(node.children.front());
      case Kind::kSequence:
        return std::ranges::all_of(node.children, [&](const auto& child) {
          return IsNullable(child);
        });
      case Kind::kChoice:
        return std::ranges::any_of(node.children, [&](const auto& child) {
          return IsNullable(child);
        });
    }
    return false;
  }

  absl::Status FindFlags(const std::vector<int>& component) {
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (const int i : component) {
        Rule& rule = rules_[i];
        RETURN_IF_ERROR(budget_.Take(2 * rule.num_nodes));
        const GrammarNode& body = grammar_.rules[i].body;
        const bool is_productive = IsProductive(body);
        const bool is_nullable = IsNullable(body);
        has_changed |= is_productive != rule.is_productive ||
                       is_nullable != rule.is_nullable;
        rule.is_productive = is_productive;
        rule.is_nullable = is_nullable;
      }
    }
    return absl::OkStatus();
  }

  // Removes what no text has from a node, so that the components which are
  // found next have productive rules alone. Returns whether it has a text.
  bool RemoveUnproductive(GrammarNode* node) const {
    std::vector<GrammarNode>& children = node->children;
    switch (node->kind) {
      case Kind::kText:
      case Kind::kSet:
      case Kind::kRule:
        return IsProductive(*node);
      case Kind::kRepeat:
        if (RemoveUnproductive(&children.front())) return true;
        if (node->min_count > 0) return false;
        *node = {.kind = Kind::kSequence};  // the empty text
        return true;
      case Kind::kSequence:
        return std::ranges::all_of(children, [&](GrammarNode& child) {
          return RemoveUnproductive(&child);
        });
      case Kind::kChoice: {
        std::vector<GrammarNode> kept;
        for (GrammarNode& child : children) {
          if (RemoveUnproductive(&child)) kept.push_back(std::move(child));
        }
        children = std::move(kept);
        return !children.empty();
      }
    }
    return false;
  }

  absl::Status FindRecursion(const std::vector<int>& component) {
    const int number = rules_[component.front()].component;
    bool is_recursive = false;
    for (const int i : component) {
      ForEachRule(grammar_.rules[i].body, true, [&](int rule, bool is_last) {
        is_recursive |= rules_[rule].component == number && !is_last;
      });
    }
    if (!is_recursive) return absl::OkStatus();
    for (const int i : component) rules_[i].is_recursive = true;
    return CheckLeftRecursion(component);
  }

  // Calls visit(rule, is_last) for each rule that a text of the node may begin
  // with.
  template <typename Visit>
  void ForEachFirst(const GrammarNode& node, bool is_last,
                    const Visit& visit) const {
    if (node.kind == Kind::kRule) return visit(node.rule, is_last);
    const bool is_once = node.kind != Kind::kRepeat || node.max_count == 1;
    if (node.kind == Kind::kRepeat && node.max_count == 0) return;
    for (const GrammarNode& child : node.children) {
      const bool is_end =
          node.kind != Kind::kSequence || &child == &node.children.back();
      ForEachFirst(child, is_last && is_once && is_end, visit);
      if (node.kind == Kind::kSequence && !IsNullable(child)) return;
    }
  }

  // A rule that calls itself before it reads a byte would be called without
  // end. If nothing follows the calls, they are none: a ::= b | "x", b ::= a.
  absl::Status CheckLeftRecursion(const std::vector<int>& component) {
    const int number = rules_[component.front()].component;
    std::map<int, std::vector<std::pair<int, bool>>> firsts;
    for (const int i : component) {
      ForEachFirst(grammar_.rules[i].body, true, [&](int rule, bool is_last) {
        if (rules_[rule].component == number) {
          firsts[i].emplace_back(rule, is_last);
        }
      });
    }
    std::vector<int> seen_from(rules_.size(), -1);  // the last search
    int num_searches = 0;
    for (const int i : component) {
      for (const auto& [first, is_last] : firsts[i]) {
        if (is_last) continue;
        std::vector<int> reached = {first};
        seen_from[first] = num_searches;
        for (size_t k = 0; k < reached.size(); ++k) {
          if (reached[k] == i) return LeftRecursion(i, first);
          for (const auto& [next, ignored] : firsts[reached[k]]) {
            RETURN_IF_ERROR(budget_.Take(1));
            if (seen_from[next] == num_searches) continue;
            seen_from[next] = num_searches;
            reached.push_back(next);
          }
        }
        ++num_searches;
      }
    }
    return absl::OkStatus();
  }

  absl::Status LeftRecursion(int rule, int first) const {
    return InvalidArgument(
        "rule ", ShownInQuotes(grammar_.rules[rule].name),
        " is left recursive: a text of it may begin with one of rule ",
        ShownInQuotes(grammar_.rules[first].name),
        first == rule ? "" : ", which may begin with one of the former",
        "; only an alternative may begin with its own rule, as in a ::= a "
        "\",\" b | b");
  }

  // Numbers the rules that are called. That of the language has number 0.
  void NumberCalls() {
    const bool any = std::ranges::any_of(
        rules_, [](const Rule& rule) { return rule.is_recursive; });
    if (!any) return;
    for (const int i : components_[rules_[grammar_.root].component]) {
      rules_[i].is_in_calls = true;
    }
    rules_[grammar_.root].call = num_called_++;
    for (const std::vector<int>& component : components_) {
      for (const int i : component) {
        Rule& rule = rules_[i];
        if (!rule.is_recursive) continue;
        rule.is_in_calls = true;
        if (rule.call < 0) rule.call = num_called_++;
      }
    }
    num_digits_ = PushdownAutomaton::NumDigitsOf(num_called_);
  }

  // Few nodes that name no rule are copied as they are.
  bool IsSimple(int rule) const {
    constexpr int64_t kFewNodes = 4;
    if (rules_[rule].num_nodes > kFewNodes) return false;
    bool names_rule = false;
    ForEachRule(grammar_.rules[rule].body, true,
                [&](int, bool) { names_rule = true; });
    return !names_rule;
  }

  // Makes the automata of the rules that others name, if they are not in the
  // NFA of all calls.
  absl::Status CompileComponent(const std::vector<int>& component) {
    for (const int i : component) {
      Rule& rule = rules_[i];
      const bool is_root = i == grammar_.root;
      if (!rule.is_named) continue;
      if (rule.is_in_calls || (!is_root && IsSimple(i))) continue;
      ByteNfa nfa(&budget_);
      ASSIGN_OR_RETURN(const State end, nfa.AddState());
      const Target target = {&nfa, end, rule.component};
      RETURN_IF_ERROR(AddStarts(component, target));
      RETURN_IF_ERROR(AddBodies(component, target));
      ASSIGN_OR_RETURN(rule.automaton, std::move(nfa).Build(rule.start, end));
      if (is_root) continue;
      RETURN_IF_ERROR(
          budget_.Take(256 * int64_t{rule.automaton->num_states()}));
      rule.ranges.emplace(*rule.automaton);
    }
    return absl::OkStatus();
  }

  absl::Status AddStarts(const std::vector<int>& component,
                         const Target& target) {
    for (const int i : component) {
      ASSIGN_OR_RETURN(rules_[i].start, target.nfa->AddState());
    }
    return absl::OkStatus();
  }

  absl::Status AddBodies(const std::vector<int>& component,
                         const Target& target) {
    for (const int i : component) {
      ASSIGN_OR_RETURN(const State end,
                       Add(grammar_.rules[i].body, rules_[i].start,
                           /*is_last=*/true, target));
      if (end == kElsewhere) continue;
      RETURN_IF_ERROR(target.nfa->AddEmpty(end, target.end));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<GrammarLanguage> CompileCalls(int max_depth) {
    ASSIGN_OR_RETURN(const State start, calls_nfa_.AddState());
    ASSIGN_OR_RETURN(const State end, calls_nfa_.AddState());
    const Target target = {&calls_nfa_, end, Target::kCalls};
    for (const std::vector<int>& component : components_) {
      RETURN_IF_ERROR(rules_[component.front()].is_in_calls
                          ? AddStarts(component, target)
                          : CompileComponent(component));
    }
    for (const std::vector<int>& component : components_) {
      if (!rules_[component.front()].is_in_calls) continue;
      RETURN_IF_ERROR(AddBodies(component, target));
      for (const int i : component) {
        if (rules_[i].call < 0) continue;
        RETURN_IF_ERROR(PushdownAutomaton::AddCall(
            rules_[i].call, num_digits_, start, rules_[i].start, &calls_nfa_));
      }
    }
    ASSIGN_OR_RETURN(const ByteAutomaton calls,
                     std::move(calls_nfa_).Build(start, end));
    ASSIGN_OR_RETURN(
        PushdownAutomaton automaton,
        PushdownAutomaton::Make(calls, num_digits_, max_depth, &budget_));
    return automaton;
  }

  // Adds paths from `from` of the texts of a node, and returns the state that
  // they lead to, or kElsewhere. No path leads back to `from`, unless it is the
  // start of a rule, from its end.
  absl::StatusOr<State> Add(const GrammarNode& node, State from, bool is_last,
                            const Target& target) {
    switch (node.kind) {
      case Kind::kText:
        return AddText(node.text, from, target);
      case Kind::kSet:
        return sets_.Add(node.set, from, target.nfa);
      case Kind::kRule:
        return AddRule(node.rule, from, is_last, target);
      case Kind::kRepeat:
        return AddRepeat(node, from, is_last, target);
      case Kind::kSequence:
        for (const GrammarNode& child : node.children) {
          const bool is_end = is_last && &child == &node.children.back();
          ASSIGN_OR_RETURN(from, Add(child, from, is_end, target));
        }
        return from;
      case Kind::kChoice: {
        ASSIGN_OR_RETURN(const State to, target.nfa->AddState());
        for (const GrammarNode& child : node.children) {
          RETURN_IF_ERROR(AddPath(child, from, to, is_last, target));
        }
        return to;
      }
    }
    return Internal("unknown node of a grammar");
  }

  absl::Status AddPath(const GrammarNode& node, State from, State to,
                       bool is_last, const Target& target) {
    ASSIGN_OR_RETURN(const State end, Add(node, from, is_last, target));
    if (end == kElsewhere) return absl::OkStatus();
    return target.nfa->AddEmpty(end, to);
  }

  absl::StatusOr<State> AddText(const std::string& text, State from,
                                const Target& target) {
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      ASSIGN_OR_RETURN(const State to, target.nfa->AddState());
      RETURN_IF_ERROR(target.nfa->AddBytes(from, byte, byte, to));
      from = to;
    }
    return from;
  }

  absl::StatusOr<State> AddRule(int number, State from, bool is_last,
                                const Target& target) {
    const Rule& rule = rules_[number];
    const bool is_in_target = target.component == Target::kCalls
                                  ? rule.is_in_calls
                                  : rule.component == target.component;
    if (is_last && is_in_target) {
      RETURN_IF_ERROR(target.nfa->AddEmpty(from, rule.start));
      return kElsewhere;
    }
    if (!rule.is_recursive && !rule.ranges) {
      return Add(grammar_.rules[number].body, from, /*is_last=*/false, target);
    }
    ASSIGN_OR_RETURN(const State to, target.nfa->AddState());
    if (!rule.is_recursive) {
      RETURN_IF_ERROR(AddAutomaton(*rule.ranges, from, to, target.nfa));
      return to;
    }
    if (rule.is_nullable) RETURN_IF_ERROR(target.nfa->AddEmpty(from, to));
    RETURN_IF_ERROR(PushdownAutomaton::AddCall(rule.call, num_digits_, from, to,
                                               target.nfa));
    return to;
  }

  absl::StatusOr<State> AddRepeat(const GrammarNode& node, State from,
                                  bool is_last, const Target& target) {
    const GrammarNode& child = node.children.front();
    is_last = is_last && node.max_count == 1;
    // An empty child adds no state, so repetitions are counted themselves.
    for (int i = 0; i < node.min_count; ++i) {
      RETURN_IF_ERROR(budget_.Take(1));
      ASSIGN_OR_RETURN(from, Add(child, from, is_last, target));
    }
    if (node.max_count == node.min_count) return from;
    ASSIGN_OR_RETURN(const State to, target.nfa->AddState());
    if (node.max_count == GrammarNode::kUnbounded) {
      ASSIGN_OR_RETURN(const State loop, target.nfa->AddState());
      RETURN_IF_ERROR(target.nfa->AddEmpty(from, loop));
      RETURN_IF_ERROR(AddPath(child, loop, loop, /*is_last=*/false, target));
      RETURN_IF_ERROR(target.nfa->AddEmpty(loop, to));
      return to;
    }
    RETURN_IF_ERROR(target.nfa->AddEmpty(from, to));
    for (int i = node.min_count; i < node.max_count; ++i) {
      RETURN_IF_ERROR(budget_.Take(1));
      ASSIGN_OR_RETURN(from, Add(child, from, is_last, target));
      if (from == kElsewhere) break;
      RETURN_IF_ERROR(target.nfa->AddEmpty(from, to));
    }
    return to;
  }

  Grammar grammar_;
  CompileBudget& budget_;
  Utf8Sets sets_;
  ByteNfa calls_nfa_;
  std::vector<Rule> rules_;
  std::vector<std::vector<int>> components_;  // each after those it leads to
  int num_called_ = 0;
  int num_digits_ = 0;
};

absl::StatusOr<GrammarLanguage> CompileGbnf(std::string_view text,
                                            const GbnfOptions& options,
                                            const CompileLimits& limits) {
  CompileBudget budget(limits);
  ASSIGN_OR_RETURN(Grammar grammar, ParseGbnf(text, &budget));
  return GbnfCompiler(std::move(grammar), &budget).Compile(options.max_depth);
}

}  // namespace espalier
