#include "constrain/contained_words.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "constrain/automaton_algebra.h"
#include "constrain/regex_language.h"

namespace espalier {
namespace {

// Returns a pattern that only `word` matches.
std::string PatternOf(std::string_view word) {
  constexpr std::string_view kSyntax = "\\^$.*+?()[]{}|/";
  std::string pattern;
  for (const char c : word) {
    if (kSyntax.find(c) != kSyntax.npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

absl::StatusOr<ByteAutomaton> ContainWords(
    const std::optional<ByteAutomaton>& language,
    std::span<const std::string> words, CompileBudget* budget) {
  CHECK(!words.empty()) << "no words";
  std::vector<ByteAutomaton> containing;
  for (const std::string& word : words) {
    ASSIGN_OR_RETURN(
        ByteAutomaton texts,
        CompileRegex(PatternOf(word), RegexMatching::kSearch, budget));
    containing.push_back(std::move(texts));
  }
  std::vector<const ByteAutomaton*> automata;
  for (const ByteAutomaton& texts : containing) automata.push_back(&texts);
  // Each one is a part of all texts, so any can begin the others' product.
  const ByteAutomaton& universe = language ? *language : containing.front();
  ASSIGN_OR_RETURN(
      std::optional<ByteAutomaton> all,
      CombineAutomata(
          universe, automata,
          [](std::span<const Truth> contains) {
            // No text with bytes that are no UTF-8 contains a word.
            if (std::ranges::find(contains, Truth::kFalse) != contains.end()) {
              return Truth::kFalse;
            }
            return std::ranges::count(contains, Truth::kUnknown) > 0
                       ? Truth::kUnknown
                       : Truth::kTrue;
          },
          budget));
  if (all.has_value()) return *std::move(all);
  return InvalidArgument("no text of the language contains all words");
}

}  // namespace espalier
