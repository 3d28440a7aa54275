#include "tests/constrain/random_patterns.h"

#include <cstddef>

namespace espalier::testing {
namespace {

int Below(int n, std::mt19937_64& random) {
  return static_cast<int>(random() % n);
}

std::string RandomAtom(int size, std::mt19937_64& random) {
  static constexpr const char* kAtoms[] = {
      "a", "b", "c", ".", "[ab]", "[^a]", "[b-c]", "\\w", "\\D", "\\x61"};
  if (size <= 1 || Below(3, random) > 0) return kAtoms[Below(10, random)];
  const char* const open = Below(2, random) == 0 ? "(" : "(?:";
  return open + RandomPattern(size - 1, random) + ")";
}

std::string RandomRepeat(std::mt19937_64& random) {
  static constexpr const char* kRepeats[] = {"*",    "+",     "?",     "{2}",
                                             "{1,}", "{0,2}", "{2,3}", "*?"};
  return Below(2, random) == 0 ? "" : kRepeats[Below(8, random)];
}

}  // namespace

std::string RandomPattern(int size, std::mt19937_64& random) {
  std::string pattern;
  const int num_atoms = 1 + Below(3, random);
  for (int i = 0; i < num_atoms; ++i) {
    pattern += RandomAtom(size / num_atoms, random);
    pattern += RandomRepeat(random);
  }
  if (size <= 1 || Below(3, random) > 0) return pattern;
  return pattern + "|" + RandomPattern(size / 2, random);
}

std::vector<std::string> AllTexts(std::string_view alphabet, int max_length) {
  std::vector<std::string> texts = {""};
  size_t begin = 0;
  for (int length = 1; length <= max_length; ++length) {
    const size_t end = texts.size();
    for (size_t i = begin; i < end; ++i) {
      for (const char c : alphabet) texts.push_back(texts[i] + c);
    }
    begin = end;
  }
  return texts;
}

}  // namespace espalier::testing
