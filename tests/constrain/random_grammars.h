// Random grammars in GBNF over a small alphabet.
#pragma once

#include <random>
#include <string>

namespace espalier::testing {

// Returns a grammar of up to four rules over the letters "ab(".
std::string RandomGrammar(std::mt19937_64& random);

}  // namespace espalier::testing
