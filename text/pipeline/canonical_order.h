// Canonical order: combining marks that follow each other stand in the order of
// their classes, those of one class as they were written.
//
// Texts need not be trusted, and a run of marks may be as long as a text: a run
// of n marks takes about n log n comparisons, not n * n.
//
// Source: Unicode Standard, section 3.11, D109.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier {

// Sorts the marks of `characters` into canonical order. `class_of(character)`
// returns the canonical combining class, 0 for a character that is no mark; it
// is called once per character.
template <typename Character, typename ClassOf>
void PutInCanonicalOrder(const ClassOf& class_of,
                         std::span<Character> characters) {
  struct Mark {
    uint8_t order;
    Character character;
  };
  std::vector<Mark> run;
  const auto end_run = [&](size_t end) {
    if (run.size() > 1 && !std::ranges::is_sorted(run, {}, &Mark::order)) {
      std::ranges::stable_sort(run, {}, &Mark::order);
      const size_t begin = end - run.size();
      for (size_t i = 0; i < run.size(); ++i) {
        characters[begin + i] = run[i].character;
      }
    }
    run.clear();
  };
  for (size_t i = 0; i < characters.size(); ++i) {
    const auto order = static_cast<uint8_t>(class_of(characters[i]));
    if (order == 0) {
      end_run(i);
    } else {
      run.push_back({order, characters[i]});
    }
  }
  end_run(characters.size());
}

}  // namespace espalier
