// The texts of a JSON value, and automata that have one of them.
#pragma once

#include "base/json.h"
#include "constrain/byte_automaton.h"
#include "constrain/pushdown_configurations.h"

namespace espalier::testing {

// True if the automaton has a text of the value without spaces: with the
// members of objects in some order, and numbers as written or in the shortest
// way, 1.0 or 1.
bool AcceptsValue(const ByteAutomaton& automaton, const json::value& value);
bool AcceptsValue(const PushdownConfigurations& texts,
                  const json::value& value);

}  // namespace espalier::testing
