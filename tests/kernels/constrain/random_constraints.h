// Constraints of random patterns and vocabularies, for tests of their masks.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "constrain/regex_language.h"
#include "constrain/text_constraint.h"
#include "tests/constrain/random_patterns.h"

namespace espalier::testing {

// Tokens 0 and 1 add no text. With a few long ones; if `size` allows, each byte
// is a token.
inline std::vector<std::string> RandomTokenTexts(int size,
                                                 std::mt19937_64& random) {
  std::vector<std::string> texts = {"", ""};
  for (int byte = 0; byte < 256 && size >= 300; ++byte) {
    texts.emplace_back(1, static_cast<char>(byte));
  }
  while (static_cast<int>(texts.size()) < size) {
    const int max_length = random() % 16 == 0 ? 40 : 5;
    std::string& text = texts.emplace_back();
    for (int left = static_cast<int>(random() % max_length); left >= 0;
         --left) {
      text += static_cast<char>('a' + random() % 3);
    }
  }
  return texts;
}

// Vocabularies in which the first token of a text loses a space, as those of
// SentencePiece do, or none.
inline std::shared_ptr<const TokenVocabulary> RandomTokenVocabulary(
    int size, std::mt19937_64& random) {
  std::vector<std::string> inside = RandomTokenTexts(size, random);
  if (random() % 2 == 0) {
    return std::make_shared<const TokenVocabulary>(inside);
  }
  std::vector<std::string> first = inside;
  for (size_t token = 2; token < first.size(); ++token) {
    if (random() % 4 != 0) continue;
    first[token] = random() % 2 == 0 ? "" : inside[token].substr(1);
  }
  return std::make_shared<const TokenVocabulary>(inside, first,
                                                 random() % 2 == 0);
}

// Returns a constraint of the vocabulary; null if it can spell no text of the
// pattern that was drawn.
inline std::shared_ptr<const TextConstraint> RandomTextConstraint(
    std::shared_ptr<const TokenVocabulary> vocabulary,
    std::mt19937_64& random) {
  const bool opens_text = random() % 4 != 0;
  std::vector<TokenId> end_ids;
  if (random() % 4 != 0) end_ids.push_back(0);
  if (random() % 2 == 0) end_ids.push_back(1);
  auto automaton = CompileRegex(RandomPattern(6, random));
  if (!automaton.ok()) return nullptr;
  auto texts = TokenConstraint::Make(
      std::make_shared<const ByteAutomaton>(*std::move(automaton)),
      std::move(vocabulary), {}, opens_text);
  if (!texts.ok()) return nullptr;
  auto constraint = TextConstraint::Make(*std::move(texts), std::move(end_ids));
  return constraint.ok() ? *std::move(constraint) : nullptr;
}

}  // namespace espalier::testing
