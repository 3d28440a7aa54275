// Random grammars in GBNF over a small alphabet.
#pragma once

#include <random>
#include <string>

namespace espalier::testing {

// Returns a grammar of up to four rules over the letters "ab(". In many the
// last rule, which others name and which names them, has no text, and the root
// is no part of a cycle.
std::string RandomGrammar(std::mt19937_64& random);

}  // namespace espalier::testing
