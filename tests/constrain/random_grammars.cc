#include "tests/constrain/random_grammars.h"

namespace espalier::testing {
namespace {

int Draw(int n, std::mt19937_64& random) {
  return static_cast<int>(random() % n);
}

// Rules from `first` to before `end` are named.
std::string RandomAlternatives(int depth, int first, int end,
                               std::mt19937_64& random);

std::string RandomElement(int depth, int first, int end,
                          std::mt19937_64& random) {
  static constexpr const char* kElements[] = {"\"a\"", "\"b\"",  "\"(\"",
                                              "[ab]",  "\"ab\"", "\"\""};
  static constexpr const char* kNames[] = {"root", "x", "y", "z"};
  static constexpr const char* kRepeats[] = {"*", "+", "?", "{2}", "{0,2}"};
  std::string element;
  const int kind = Draw(10, random);
  if (kind < 5) {
    element = kElements[Draw(6, random)];
  } else if (kind < 9 || depth == 0) {
    element = kNames[first + Draw(end - first, random)];
  } else {
    element = "(" + RandomAlternatives(depth - 1, first, end, random) + ")";
  }
  if (Draw(5, random) == 0) element += kRepeats[Draw(5, random)];
  return element;
}

std::string RandomAlternatives(int depth, int first, int end,
                               std::mt19937_64& random) {
  std::string text;
  const int num_alternatives = 1 + Draw(3, random);
  for (int i = 0; i < num_alternatives; ++i) {
    if (i > 0) text += " | ";
    const int num_elements = Draw(4, random);
    for (int k = 0; k < num_elements; ++k) {
      text += RandomElement(depth, first, end, random) + " ";
    }
  }
  return text;
}

}  // namespace

std::string RandomGrammar(std::mt19937_64& random) {
  static constexpr const char* kNames[] = {"root", "x", "y", "z"};
  const int num_rules = 1 + Draw(4, random);
  const bool has_endless = num_rules > 1 && Draw(2, random) == 0;
  const int first = has_endless ? 1 : 0;  // the root is no part of a cycle
  std::string grammar;
  for (int i = 0; i < num_rules; ++i) {
    const std::string name = kNames[i];
    grammar += name + " ::= ";
    if (has_endless && i == num_rules - 1) {
      grammar += "\"b\" " + RandomElement(1, first, num_rules, random) + " " +
                 name + " " + RandomElement(1, first, num_rules, random) + "\n";
    } else {
      grammar += RandomAlternatives(1, first, num_rules, random) + "\n";
    }
  }
  return grammar;
}

}  // namespace espalier::testing
