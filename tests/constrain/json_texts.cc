#include "tests/constrain/json_texts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constrain/json_string_language.h"

namespace espalier::testing {
namespace {

using States = std::set<int32_t>;

template <typename Automaton>
States After(const Automaton& automaton, const States& states,
             std::string_view bytes) {
  States result;
  for (const auto state : states) {
    const auto next = automaton.Next(state, bytes);
    if (next >= 0) result.insert(next);
  }
  return result;
}

template <typename Automaton>
States AfterValue(const Automaton& automaton, const States& states,
                  const json::value& value);

template <typename Automaton>
States AfterArray(const Automaton& automaton, States states,
                  const json::array& items) {
  states = After(automaton, states, "[");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) states = After(automaton, states, ",");
    states = AfterValue(automaton, states, items[i]);
  }
  return After(automaton, states, "]");
}

// More members are taken as written, or else put in an order by looking one
// member ahead.
constexpr size_t kMaxPermutedMembers = 8;

template <typename Automaton>
States AfterMember(const Automaton& automaton, States states, bool is_first,
                   const json::key_value_pair& member) {
  if (!is_first) states = After(automaton, states, ",");
  states = After(automaton, states, QuoteString(member.key()) + ":");
  return AfterValue(automaton, states, member.value());
}

// True if the member may come in some of the states.
template <typename Automaton>
bool MayCome(const Automaton& automaton, const States& states, bool is_first,
             const json::key_value_pair& member) {
  const std::string key = QuoteString(member.key()) + ":";
  return !After(automaton, states, is_first ? key : "," + key).empty();
}

// Takes each time the first member after which the others that may come now
// still may.
template <typename Automaton>
States AfterManyMembers(const Automaton& automaton, States states,
                        const json::object& object) {
  std::vector<const json::key_value_pair*> rest;
  for (const auto& member : object) rest.push_back(&member);
  while (!rest.empty() && !states.empty()) {
    const bool is_first = rest.size() == object.size();
    States next;
    size_t taken = 0;
    for (; taken < rest.size(); ++taken) {
      next = AfterMember(automaton, states, is_first, *rest[taken]);
      if (next.empty()) continue;
      const bool leaves_all =
          std::all_of(rest.begin(), rest.end(), [&](const auto* other) {
            return other == rest[taken] ||
                   !MayCome(automaton, states, is_first, *other) ||
                   MayCome(automaton, next, false, *other);
          });
      if (leaves_all) break;
    }
    if (taken == rest.size()) return {};
    states = std::move(next);
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(taken));
  }
  return states;
}

template <typename Automaton>
States AfterMembersAsWritten(const Automaton& automaton, States states,
                             const json::object& object) {
  bool is_first = true;
  for (const auto& member : object) {
    states = AfterMember(automaton, states, is_first, member);
    is_first = false;
  }
  return states;
}

// Goes through the sets of members that may come first.
template <typename Automaton>
States AfterObject(const Automaton& automaton, const States& states,
                   const json::object& object) {
  const States begin = After(automaton, states, "{");
  if (object.size() > kMaxPermutedMembers) {
    States end =
        After(automaton, AfterMembersAsWritten(automaton, begin, object), "}");
    end.merge(
        After(automaton, AfterManyMembers(automaton, begin, object), "}"));
    return end;
  }
  std::vector<States> after(size_t{1} << object.size());
  after[0] = begin;
  for (size_t set = 0; set < after.size(); ++set) {
    if (after[set].empty()) continue;
    size_t bit = 1;
    for (const auto& member : object) {
      if ((set & bit) == 0) {
        after[set | bit].merge(
            AfterMember(automaton, after[set], set == 0, member));
      }
      bit *= 2;
    }
  }
  return After(automaton, after.back(), "}");
}

template <typename Automaton>
States AfterValue(const Automaton& automaton, const States& states,
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

template <typename Automaton>
bool Accepts(const Automaton& automaton, const json::value& value) {
  for (const int32_t state : AfterValue(automaton, {0}, value)) {
    if (automaton.accepts(state)) return true;
  }
  return false;
}

}  // namespace

bool AcceptsValue(const ByteAutomaton& automaton, const json::value& value) {
  return Accepts(automaton, value);
}

bool AcceptsValue(const PushdownConfigurations& texts,
                  const json::value& value) {
  return Accepts(texts, value);
}

}  // namespace espalier::testing
