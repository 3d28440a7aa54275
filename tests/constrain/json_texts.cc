#include "tests/constrain/json_texts.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/json_string_language.h"

namespace espalier::testing {
namespace {

using States = std::set<ByteAutomaton::State>;

States After(const ByteAutomaton& automaton, const States& states,
             std::string_view bytes) {
  States result;
  for (const auto state : states) {
    const auto next = automaton.Next(state, bytes);
    if (next != ByteAutomaton::kNone) result.insert(next);
  }
  return result;
}

States AfterValue(const ByteAutomaton& automaton, const States& states,
                  const json::value& value);

States AfterArray(const ByteAutomaton& automaton, States states,
                  const json::array& items) {
  states = After(automaton, states, "[");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) states = After(automaton, states, ",");
    states = AfterValue(automaton, states, items[i]);
  }
  return After(automaton, states, "]");
}

// Goes through the sets of members that may come first.
States AfterObject(const ByteAutomaton& automaton, const States& states,
                   const json::object& object) {
  const size_t num_sets = size_t{1} << object.size();
  std::vector<States> after(num_sets);
  after[0] = After(automaton, states, "{");
  for (size_t set = 0; set < num_sets; ++set) {
    if (after[set].empty()) continue;
    size_t i = 0;
    for (const auto& [key, member] : object) {
      const size_t bit = size_t{1} << i++;
      if ((set & bit) != 0) continue;
      States next = after[set];
      if (set != 0) next = After(automaton, next, ",");
      next = After(automaton, next, QuoteString(key) + ":");
      next = AfterValue(automaton, next, member);
      after[set | bit].insert(next.begin(), next.end());
    }
  }
  return After(automaton, after.back(), "}");
}

States AfterValue(const ByteAutomaton& automaton, const States& states,
                  const json::value& value) {
  if (states.empty()) return states;
  if (value.is_array()) return AfterArray(automaton, states, value.get_array());
  if (value.is_object()) {
    return AfterObject(automaton, states, value.get_object());
  }
  if (value.is_string()) {
    return After(automaton, states, QuoteString(value.get_string()));
  }
  States result = After(automaton, states, WriteJson(value));
  const bool is_whole = value.is_double() &&
                        std::floor(value.get_double()) == value.get_double() &&
                        std::fabs(value.get_double()) < 1e15;
  if (is_whole) {
    const std::string text =
        std::to_string(static_cast<int64_t>(value.get_double()));
    for (const std::string& one : {text, text + ".0"}) {
      result.merge(After(automaton, states, one));
    }
  }
  return result;
}

}  // namespace

bool AcceptsValue(const ByteAutomaton& automaton, const json::value& value) {
  for (const auto state :
       AfterValue(automaton, {ByteAutomaton::kStart}, value)) {
    if (automaton.accepts(state)) return true;
  }
  return false;
}

}  // namespace espalier::testing
